"""The outbox: an update is there whole or not at all, whatever was torn."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.common.payload.checksum import GRANULE, Marks
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section
from edgeflock.common.scores import ClientScore


def entry(payload: bytes, round: int = 3, split: int = 5) -> OutboxEntry:
    layout = b"L" * 16
    topk = CodecChoice("topk", zstd=True, fraction=0.01)
    sections = (
        Section(Kind.DELTA, layout, topk, 99, split),
        Section(Kind.BUFFERS, layout, CodecChoice(), 4, len(payload) - split),
    )
    marks = Marks.of([payload])
    package = Package(sections, {"loss": 1 / 3, "steps": 7.0, "odd": float("nan")}, marks.value)
    scores = (ClientScore("client_local", 30, 7, 1 / 3),)
    described = Description(round, package, 42, scores, made_from=b"m" * 16, moved=True)
    return OutboxEntry("run1", described, TrainCost(1.5, 0.5, 1000, 0.25, 99), marks, epoch=2)


def put(folder: Path, payload: bytes, round: int = 3) -> OutboxEntry:
    made = entry(payload, round)
    Outbox(folder).put(made, [payload[:5], memoryview(payload)[5:]])
    return made


def same(found: OutboxEntry | None, put: OutboxEntry) -> bool:
    """Equality; a NaN among the scalars makes the packages themselves differ, their digests not."""
    if found is None or found.package.digest != put.package.digest or found.marks.value != put.marks.value:
        return False
    described = replace(found.description, package=put.package)
    return replace(found, description=described, marks=put.marks) == put


def content(outbox: Outbox) -> bytes:
    descriptor = outbox.open_payload()
    try:
        return os.read(descriptor, 1 << 24)
    finally:
        os.close(descriptor)


def test_a_new_outbox_is_empty(tmp_path: Path) -> None:
    assert Outbox(tmp_path).entry is None


def test_an_update_survives_the_process(tmp_path: Path) -> None:
    payload = os.urandom(3 * GRANULE + 77)
    made = put(tmp_path, payload)
    found = Outbox(tmp_path)
    assert same(found.entry, made)
    assert content(found) == payload
    assert found.entry is not None
    assert [found.entry.marks.at(n * GRANULE) for n in range(4)] == [
        made.marks.at(n * GRANULE) for n in range(4)
    ]


def test_an_empty_payload_is_an_update_too(tmp_path: Path) -> None:
    made = entry(b"", split=0)
    Outbox(tmp_path).put(made, [])
    assert same(Outbox(tmp_path).entry, made)


def test_a_later_update_takes_the_place_of_a_longer_one_and_its_file(tmp_path: Path) -> None:
    put(tmp_path, os.urandom(9000), round=1)
    number = (tmp_path / "outbox" / "payload").stat().st_ino
    made = put(tmp_path, b"short!", round=2)
    found = Outbox(tmp_path)
    assert same(found.entry, made)
    assert content(found) == b"short!"
    assert (tmp_path / "outbox" / "payload").stat().st_ino == number


def test_a_cleared_outbox_is_empty_for_ever(tmp_path: Path) -> None:
    put(tmp_path, b"payload")
    outbox = Outbox(tmp_path)
    outbox.clear()
    outbox.clear()
    assert outbox.entry is None
    assert Outbox(tmp_path).entry is None


def test_a_process_that_dies_while_writing_leaves_nothing(tmp_path: Path) -> None:
    """The description is written last: without it there is no update."""
    outbox = Outbox(tmp_path)

    class Died(Exception):
        pass

    def pieces() -> list[bytes]:
        raise Died

    with pytest.raises(Died):
        outbox.put(entry(b"payload"), pieces())
    assert Outbox(tmp_path).entry is None


def test_every_cut_and_flip_of_the_description_is_found(tmp_path: Path) -> None:
    """Never another update than the one written: the same one, or none and a line."""
    made = put(tmp_path, b"some payload")
    meta = tmp_path / "outbox" / "meta"
    good = meta.read_bytes()
    for place in range(len(good)):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]):
            meta.write_bytes(bad)
            with capture_logs() as lines:
                assert Outbox(tmp_path).entry is None
                assert Outbox(tmp_path).entry is None
            assert [line["event"] for line in lines] == ["outbox_discarded"], "it is said once"
    meta.write_bytes(good)
    assert same(Outbox(tmp_path).entry, made)


def test_every_cut_and_flip_of_the_payload_is_found(tmp_path: Path) -> None:
    payload = os.urandom(300)
    made = put(tmp_path, payload)
    meta, file = tmp_path / "outbox" / "meta", tmp_path / "outbox" / "payload"
    good = meta.read_bytes()
    for place in range(len(payload)):
        flipped = payload[:place] + bytes([payload[place] ^ 0x80]) + payload[place + 1 :]
        for bad in (payload[:place], flipped, payload + bytes(place + 1)):
            file.write_bytes(bad)
            meta.write_bytes(good)
            assert Outbox(tmp_path).entry is None
    file.write_bytes(payload)
    meta.write_bytes(good)
    assert same(Outbox(tmp_path).entry, made)


def test_a_description_without_a_payload_is_no_update(tmp_path: Path) -> None:
    put(tmp_path, b"payload")
    (tmp_path / "outbox" / "payload").unlink()
    assert Outbox(tmp_path).entry is None


def test_pages_of_the_update_before_are_found(tmp_path: Path) -> None:
    """After a power cut an old page may stand where a new one should: same length, another content."""
    first, second = os.urandom(8192), os.urandom(8192)
    put(tmp_path, first, round=1)
    put(tmp_path, second, round=2)
    (tmp_path / "outbox" / "payload").write_bytes(second[:4096] + first[4096:])
    assert Outbox(tmp_path).entry is None


def test_the_description_of_the_update_before_does_not_fit_the_new_payload(tmp_path: Path) -> None:
    put(tmp_path, os.urandom(4096), round=1)
    meta = tmp_path / "outbox" / "meta"
    old = meta.read_bytes()
    put(tmp_path, os.urandom(4096), round=2)
    meta.write_bytes(old)
    assert Outbox(tmp_path).entry is None


# What version 0.1 stored of `entry(b"some payload")`, to the byte, before both ends had one form for it.
FORMER = (
    b'{"run_id": "run1", "round": 3, "samples": 42, "candidate": true, "cost": {"train_s": 1.5, '
    b'"cpu_s": 0.5, "peak_rss_bytes": 1000, "steps": 7, "fetch_s": 0.25, "samples_done": 99, '
    b'"used_up": "", "readings": {"peak_gpu_bytes": null, "temperature_c": null, "throttled": null, '
    b'"energy_j": null, "energy_source": 0}}, "digest": "c5702a504b9cf485c0e6a3860fe75734", '
    b'"crc32c": 1735387088, "scalars": {"loss": "0x1.5555555555555p-2", "steps": '
    b'"0x1.c000000000000p+2", "odd": "nan"}, "sections": [{"kind": "delta", "layout": '
    b'"4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c", "codec": {"name": "topk", "zstd": true, "fraction": 0.01}, '
    b'"elements": 99, "size_bytes": 5}, {"kind": "buffers", "layout": '
    b'"4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c", "codec": {"name": "identity", "zstd": false, "fraction": '
    b'0.0}, "elements": 4, "size_bytes": 7}], "scores": [{"model": "client_local", "samples": 30, '
    b'"hits": 7, "loss": 0.3333333333333333}]}\n8a60a48f\n'
)


def test_an_update_that_the_version_before_has_stored_is_read(tmp_path: Path) -> None:
    """A device that is upgraded in the midst of a round loses nothing."""
    today = put(tmp_path, b"some payload")
    made = replace(today, description=replace(today.description, made_from=b""), epoch=None)
    (tmp_path / "outbox" / "meta").write_bytes(FORMER)
    assert same(Outbox(tmp_path).entry, made)
