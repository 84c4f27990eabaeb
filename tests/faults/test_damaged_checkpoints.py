"""A checkpoint that has rotted is noticed: rebuilt from the spool, else the round before is used."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from support import damage
from support.damage import Damaged
from support.played_run import LAST, Played, come_back, play, same
from support.promises import Trials

FILES = ("model.safetensors", "state.safetensors")


def header_size(content: bytes) -> int:
    return 8 + int(struct.unpack("<Q", content[:8])[0])


def wrong(run: Played, copy: Path, *, lost: bool) -> str:
    """Start on a damaged copy; return what is wrong with what came out, nothing if it is right."""
    if lost:
        shutil.rmtree(copy / "run" / "spool")
    back = come_back(copy)
    found = (back.resumed.committed, back.resumed.epoch, back.said[-1])
    wanted = (LAST - 1, 1, "epoch_raised") if lost else (LAST, 0, "checkpoint_rebuilt")
    if found != wanted or back.said[0] != "checkpoint_damaged":
        return f"{found}, said {back.said}"
    if not same(back.state, run.states[back.resumed.committed]):
        return "another state was loaded"
    return "" if same(come_back(copy).state, back.state) else "another state was written"


def try_all(
    run: Played, folder: Path, name: str, cases: Iterable[Damaged], trials: Trials, *, lost: bool
) -> None:
    """Damage that file of the newest round in all these ways."""
    for what, content in cases:
        copy = folder / "copy"
        damage.copied(run.run_dir, copy / "run")
        (copy / "run" / "rounds" / f"{LAST:06d}" / name).write_bytes(content)
        with trials(f"{name}, {what}, spool {'lost' if lost else 'kept'}"):
            assert not wrong(run, copy, lost=lost)


def newest(run: Played, name: str) -> bytes:
    return (run.run_dir / "rounds" / f"{LAST:06d}" / name).read_bytes()


@pytest.mark.promise("R3")
@pytest.mark.parametrize("lost", [False, True], ids=["spool kept", "spool lost"])
@pytest.mark.parametrize("name", FILES)
def test_some_damage_to_the_newest_checkpoint(
    folder: Path, run: Played, trials: Trials, name: str, lost: bool
) -> None:
    dice = random.Random(4)
    content = newest(run, name)
    cases = damage.some(damage.everything(content, header_size(content), 100, dice), 15, dice)
    try_all(run, folder, name, [*cases, ("empty", b"")], trials, lost=lost)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.promise("R3")
@pytest.mark.parametrize("lost", [False, True], ids=["spool kept", "spool lost"])
@pytest.mark.parametrize("name", FILES)
def test_every_damage_to_the_newest_checkpoint(
    folder: Path, run: Played, trials: Trials, name: str, lost: bool
) -> None:
    content = newest(run, name)
    cases = damage.everything(content, header_size(content), 1000, random.Random(5))
    try_all(run, folder, name, cases, trials, lost=lost)
    assert trials.tried > 1000


@pytest.mark.promise("R3")
@pytest.mark.parametrize("lost", [False, True], ids=["spool kept", "spool lost"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_in_the_place_of_another(
    folder: Path, run: Played, trials: Trials, name: str, lost: bool
) -> None:
    """The file of an older round, the other file of the round, the same round of another run."""
    other = next(other for other in FILES if other != name)
    (folder / "other").mkdir()
    foreign = play(folder / "other", shift=100)
    older = (run.run_dir / "rounds" / f"{LAST - 1:06d}" / name).read_bytes()
    cases = [("older", older), ("other file", newest(run, other)), ("other run", newest(foreign, name))]
    try_all(run, folder, name, cases, trials, lost=lost)


@pytest.mark.promise("R3")
@pytest.mark.parametrize("lost", [False, True], ids=["spool kept", "spool lost"])
def test_rounds_in_each_others_place(folder: Path, run: Played, lost: bool) -> None:
    """Both directories hold whole checkpoints, neither the one that it should."""
    copy = folder / "copy"
    damage.copied(run.run_dir, copy / "run")
    newest, older = (copy / "run" / "rounds" / f"{number:06d}" for number in (LAST, LAST - 1))
    newest.rename(copy / "aside")
    older.rename(newest)
    (copy / "aside").rename(older)
    if lost:
        shutil.rmtree(copy / "run" / "spool")
    back = come_back(copy)
    assert back.said[0] == "checkpoint_damaged"
    assert (back.resumed.committed, back.resumed.epoch) == (0, 1)  # neither is what it is said to be
    assert back.state.scalars == {"steps": 0.0}
    assert come_back(copy).resumed.epoch == 1
