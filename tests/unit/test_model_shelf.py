"""The shelf of models on a device: a power cut at any moment leaves a whole version, and transfers go on."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import edgeflock
from edgeflock.client.config import ClientConfig, resolve
from edgeflock.client.keeping import models
from edgeflock.client.keeping.models import ArrivingModel, ModelKey, Shelf
from edgeflock.client.link.transfer import IncomingModel
from edgeflock.client.protocol import Interrupted
from edgeflock.common.errors import CorruptPayload, EdgeflockError, LayoutMismatch
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit.registry import build
from edgeflock.common.payload import tensorfile
from edgeflock.common.payload.checksum import GRANULE, extend
from edgeflock.common.payload.layout import Layout, ModelLayouts
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package
from edgeflock.common.payload.tensorfile import Group
from edgeflock.common.run import ModelDescription
from edgeflock.common.saved import Recipe
from edgeflock.common.wire.chunks import Piece

SHAPE = (1, 8, 8)
RECIPE = Recipe(ModelDescription("linear", SHAPE, 10))
LAYOUTS = ModelLayouts(Layout.of([("w", (GRANULE,))]))  # 4 granules of bytes


def key(round: int) -> ModelKey:
    return ModelKey("run", 1, round)


def version(round: int) -> tuple[list[Group], dict[str, str]]:
    flat = FlatModel(build("linear", input_shape=SHAPE, classes=10, seed=round))
    return [(flat.layout, flat.params)], {**RECIPE.metadata(), **key(round).metadata()}


def test_the_newest_is_current_and_the_oldest_go(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "m" / "models", keep=2)
    for round in (3, 8, 9):
        shelf.put(*version(round))
        assert edgeflock.load(shelf.path).about["round"] == str(round)
        assert shelf.holds(key(round))
    assert not shelf.holds(key(8))
    assert sorted(os.listdir(shelf.path / "versions")) == ["000002-round-8", "000003-round-9"]


class _PowerCut(BaseException):
    pass


@contextlib.contextmanager
def cut_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Within this the power goes with the call after so many that change something on the disk."""
    done: list[str] = []

    def watched(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def step(*args: object, **more: object) -> object:
            if len(done) == calls:
                raise _PowerCut
            done.append(name)
            return real(*args, **more)

        patch.setattr(owner, name, step)

    with monkeypatch.context() as patch:
        for owner, names in (
            (models, ("flush_names",)),
            (tensorfile, ("write",)),
            (shutil, ("rmtree",)),
            (Path, ("mkdir", "rename", "replace", "symlink_to", "unlink")),
        ):
            for name in names:
                watched(owner, name)
        yield done


def test_a_power_cut_at_any_step_leaves_the_old_version_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for calls in range(100):
        shelf = Shelf(tmp_path / str(calls), keep=1)
        shelf.put(*version(1))
        with cut_after(calls, monkeypatch) as done, contextlib.suppress(_PowerCut):
            shelf.put(*version(2))
        outcomes.append(edgeflock.load(shelf.path).about["round"])
        shelf.put(*version(3))  # and the next one goes its way
        assert edgeflock.load(shelf.path).about["round"] == "3"
        assert os.listdir(shelf.path / "versions") == [os.path.basename(os.readlink(shelf.path / "current"))]
        if len(done) < calls:
            break
    assert outcomes == sorted(outcomes)
    assert {"1", "2"} == set(outcomes)


def test_the_command_is_run_once_for_a_version_also_if_a_life_before_could_not(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    assert shelf.untold is None
    shelf.put(*version(4))
    said = Shelf(tmp_path).untold
    assert said is not None
    assert said["round"] == "4"
    shelf.tell()
    assert Shelf(tmp_path).untold is None


# ------------------------------------------------------------------------------------------------ arriving


def packed(value: float = 1.0, codec: CodecChoice = IDENTITY) -> tuple[Package, bytes]:
    flat = torch.full((GRANULE,), value)
    sent = pack({Kind.MODEL: (flat, LAYOUTS.parameters, codec)}, {}, lambda _: torch.Generator())
    return sent.package, b"".join(bytes(piece) for piece in sent.pieces)


def pieces(payload: bytes, start: int) -> Iterator[Piece]:
    for offset in range(start, len(payload), GRANULE):
        data = payload[offset : offset + GRANULE]
        checksum = extend(0, payload[: offset + len(data)])
        yield Piece(offset, memoryview(data), checksum, len(data))


def incoming(folder: Path, round: int = 5) -> IncomingModel:
    return IncomingModel(round, ArrivingModel(folder / "arriving", key(round)), LAYOUTS)


def test_another_process_goes_on_where_one_was_killed(tmp_path: Path) -> None:
    package, payload = packed()
    first = incoming(tmp_path)
    first.describe(package)
    for piece in list(pieces(payload, 0))[:3]:
        first.take(piece)
    again = incoming(tmp_path)
    assert (again.position, again.digest) == (3 * GRANULE, package.digest)
    for piece in pieces(payload, again.position):
        again.take(piece)
    assert again.complete
    arrival = ArrivingModel(tmp_path / "arriving", key(5))
    assert arrival.package == package
    assert float(arrival.groups(LAYOUTS)[1][1].sum()) == GRANULE
    assert incoming(tmp_path).complete  # killed before it was put on the shelf
    assert incoming(tmp_path, round=6).position == 0  # another model begins anew


def test_what_a_power_cut_has_torn_is_fetched_from_the_beginning(tmp_path: Path) -> None:
    package, payload = packed()
    first = incoming(tmp_path)
    first.describe(package)
    for piece in list(pieces(payload, 0))[:3]:
        first.take(piece)
    with (tmp_path / "arriving").open("r+b") as file:
        file.write(b"\0" * 100)
    again = incoming(tmp_path)
    with pytest.raises(Interrupted):
        again.take(next(pieces(payload, again.position)))
    assert again.position == 0
    for piece in pieces(payload, 0):
        again.take(piece)
    assert (tmp_path / "arriving").read_bytes() == payload


def test_a_model_of_another_layout_or_size_is_refused_before_a_byte_is_taken(tmp_path: Path) -> None:
    flat, other = torch.zeros(2 * GRANULE), Layout.of([("w", (2 * GRANULE,))])
    larger = pack({Kind.MODEL: (flat, other, IDENTITY)}, {}, lambda _: torch.Generator()).package
    with pytest.raises(LayoutMismatch, match="numbers of another layout"):
        incoming(tmp_path).describe(larger)
    more = pack(
        {
            Kind.MODEL: (flat[:GRANULE], LAYOUTS.parameters, IDENTITY),
            Kind.MOMENTUM: (flat[:GRANULE], LAYOUTS.parameters, IDENTITY),
        },
        {},
        lambda _: torch.Generator(),
    ).package
    with pytest.raises(LayoutMismatch, match="offers as a model holds model, momentum"):
        incoming(tmp_path).describe(more)
    with pytest.raises(CorruptPayload, match="not as it is, but fp16"):
        incoming(tmp_path).describe(packed(codec=CodecChoice("fp16"))[0])
    assert (tmp_path / "arriving").stat().st_size == 0


# ------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"on_model": "true"}, "--on-model has no use without --save-model DIR"),
        ({"keep_models": 5}, "--keep-models has no use without --save-model DIR"),
        ({"save_model": Path("m"), "save_which": "last"}, "allowed is final or best"),
        ({"save_model": Path("m"), "on_model": "no-such-command-here -x"}, "a command that there is"),
        ({"save_model": Path("m"), "on_model": "echo 'open"}, "No closing quotation"),
        ({"save_model": Path("m"), "id": "h", "host_clients": 2}, "a path with {id} in it"),
        ({"save_model": Path("m{index}"), "id": "h"}, "ids end in a number"),
    ],
)
def test_what_cannot_be_meant_is_said_at_the_start(given: dict[str, object], words: str) -> None:
    with pytest.raises(EdgeflockError) as caught:
        resolve(ClientConfig(**given))  # type: ignore[arg-type]
    assert words in str(caught.value)
