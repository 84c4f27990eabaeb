"""Our safetensors files: readable by the library, and never believed when a bit of them is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from edgeflock.common.errors import CorruptCheckpoint
from edgeflock.common.payload import tensorfile
from edgeflock.common.payload.checksum import Marks
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.tensorfile import Group

COUNTERS = Layout.of([("bn.num_batches_tracked", ()), ("bn2.num_batches_tracked", ())], "int64")
PARAMETERS = Layout.of([("fc.weight", (3, 4)), ("fc.bias", (3,)), ("empty", (0, 7))])
NONE = Layout.of([])


def groups(seed: int = 1) -> list[Group]:
    generator = torch.Generator().manual_seed(seed)
    counters = torch.randint(-(2**62), 2**62, (2,), generator=generator)
    return [(COUNTERS, counters), (NONE, torch.zeros(0)), (PARAMETERS, torch.randn(15, generator=generator))]


def blank() -> list[Group]:
    return [
        (COUNTERS, torch.zeros(2, dtype=torch.int64)),
        (NONE, torch.zeros(0)),
        (PARAMETERS, torch.zeros(15)),
    ]


def flats(some: list[Group]) -> list[Tensor]:
    return [flat for _, flat in some]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = tensorfile.write(tmp_path / "x", groups(), {"round": "3", "b": "ü"})
    into = blank()
    metadata, read = tensorfile.read(tmp_path / "x", into, written.digest)
    assert metadata == {"round": "3", "b": "ü"}
    assert all(map(torch.equal, flats(into), flats(groups())))
    assert (read.digest, read.data_start, read.marks.value) == (
        written.digest, written.data_start, written.marks.value
    )  # fmt: skip


def test_the_safetensors_library_reads_our_files(tmp_path: Path) -> None:
    """Integers and floats in one file, scalars, empty tensors, metadata."""
    tensorfile.write(tmp_path / "x", groups(), {"round": "3"})
    loaded = load_file(tmp_path / "x")
    (_, counters), _, (_, parameters) = groups()
    assert loaded["bn.num_batches_tracked"].shape == ()
    assert [int(loaded[spec.name]) for spec in COUNTERS.tensors] == counters.tolist()
    assert torch.equal(loaded["fc.weight"], parameters[:12].view(3, 4))
    assert torch.equal(loaded["fc.bias"], parameters[12:])
    assert loaded["empty"].shape == (0, 7)
    with safe_open(tmp_path / "x", "pt") as opened:
        assert opened.metadata() == {"round": "3"}


def test_the_data_region_is_the_payload_that_its_marks_describe(tmp_path: Path) -> None:
    written = tensorfile.write(tmp_path / "x", groups(), {})
    data = (tmp_path / "x").read_bytes()[written.data_start :]
    assert Marks.of([data]).value == written.marks.value
    assert written.data_start % 8 == 0


def test_large_tensors_go_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tensorfile.write(tmp_path / "whole", groups(), {})
    monkeypatch.setattr(tensorfile, "BLOCK_BYTES", 12)
    assert tensorfile.write(tmp_path / "cut", groups(), {}).digest == whole.digest
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    into = blank()
    tensorfile.read(tmp_path / "whole", into, whole.digest)
    assert all(map(torch.equal, flats(into), flats(groups())))


def test_the_same_content_has_the_same_bytes_and_other_content_another_digest(tmp_path: Path) -> None:
    first = tensorfile.write(tmp_path / "a", groups(), {"a": "1", "b": "2"})
    second = tensorfile.write(tmp_path / "b", groups(), {"b": "2", "a": "1"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    digests = {
        first.digest,
        second.digest,
        tensorfile.write(tmp_path / "c", groups(2), {"a": "1", "b": "2"}).digest,
        tensorfile.write(tmp_path / "d", groups(), {"a": "1"}).digest,
    }
    assert len(digests) == 3


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, str]:
    path = tmp_path_factory.mktemp("file") / "x"
    digest = tensorfile.write(path, groups(), {"round": "3"}).digest
    return path, path.read_bytes(), digest


def refused(path: Path, content: bytes, digest: str) -> bool:
    path.write_bytes(content)
    try:
        tensorfile.read(path, blank(), digest)
    except CorruptCheckpoint:
        return True
    return False


def test_a_flip_of_any_byte_is_refused(small: tuple[Path, bytes, str]) -> None:
    path, good, digest = small
    assert not refused(path, good, digest)
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= (0x01, 0x20, 0x80, 0xFF)[position % 4]
        assert refused(path, bytes(bad), digest), position


def test_a_file_of_any_other_length_is_refused(small: tuple[Path, bytes, str]) -> None:
    path, good, digest = small
    for size in range(len(good)):
        assert refused(path, good[:size], digest), size
    assert refused(path, good + b"\0", digest)


@given(content=st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_refused(small: tuple[Path, bytes, str], content: bytes) -> None:
    path, good, digest = small
    assert refused(path, content, digest)
    assert refused(path, good[:8] + content, digest)


@pytest.mark.parametrize(
    "header",
    [b"{}", b"[]", b"1", b'{"__metadata__": 3}', b'{"__metadata__": null}', b"\xff\xfe", b"[" * 100_000],
)
def test_a_strange_header_is_refused(tmp_path: Path, header: bytes) -> None:
    assert refused(tmp_path / "x", len(header).to_bytes(8, "little") + header, "0" * 64)


def test_the_sentence_says_which_file_and_why(tmp_path: Path, small: tuple[Path, bytes, str]) -> None:
    _, good, digest = small
    path = tmp_path / "model.safetensors"
    cases = {
        "cannot be read: No such file": None,
        "is not a safetensors file": b"",
        "is shorter than its tensors": good[:-1],
        "has not the digest that the journal names": good[:-1] + bytes([good[-1] ^ 1]),
    }
    for words, content in cases.items():
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(CorruptCheckpoint, match=words) as raised:
            tensorfile.read(path, blank(), digest)
        assert str(path) in str(raised.value)


def test_a_file_of_other_tensors_is_refused_before_a_number_is_read(tmp_path: Path) -> None:
    other = Layout.of([("fc.weight", (4, 3)), ("fc.bias", (3,)), ("empty", (0, 7))])
    digest = tensorfile.write(tmp_path / "x", [(other, torch.ones(15))], {}).digest
    into = torch.zeros(15)
    with pytest.raises(CorruptCheckpoint, match="does not hold the tensors it should"):
        tensorfile.read(tmp_path / "x", [(PARAMETERS, into)], digest)
    assert not into.any()
