"""The power fails at any instant: what the disk then holds opens as the last committed round, or the next."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from support import damage, powerloss, processes
from support.powerloss import Cut, Disk, Fate
from support.processes import Flock
from support.promises import Trials
from support.recorded_run import (
    HOST,
    Recording,
    Said,
    check,
    flock_on_a_disk,
    instants,
    record,
    record_going_back,
    recorded,
)
from support.strace import needs_strace

pytestmark = needs_strace

LONGER = ("--clients=2", "--rounds=8", "--seed=5", "--deadline=60", "--codec=topk:0.1")  # clients keep state
PLAIN = tuple(
    Cut(names, data) for names in (Fate.LOST, Fate.KEPT) for data in (Fate.LOST, Fate.KEPT, Fate.SIZE)
)
DICED = tuple(
    Cut(names, data) for names in (Fate.FIRST, Fate.ANY) for data in (Fate.KEPT, Fate.FIRST, Fate.ANY)
)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("recording") / "run")


def survive(
    folder: Path,
    recording: Recording,
    number: int,
    disk: Disk,
    said: Said,
    cuts: Iterable[Cut],
    seen: set[int],
    trials: Trials,
) -> dict[str, int]:
    """Open what each of these power cuts leaves, unless the same was opened before; count the outcomes."""
    outcomes: dict[str, int] = {}
    for cut in cuts:
        image = disk.after(cut)
        same = hash((frozenset(image.items()), str(said)))
        if same in seen:
            continue
        seen.add(same)
        folder.mkdir()
        powerloss.write(image, folder)
        left = {path: None if content is None else len(content) for path, content in image.items()}
        with trials(f"power cut after change {number}, {cut}, {said}, which leaves {left}"):
            outcome = check(folder / "run", said, recording)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(folder)
    return outcomes


def sweep(folder: Path, recording: Recording, share: float, seed: int, trials: Trials) -> dict[str, int]:
    """Cut the power at a share of all instants, in some of the ways or all of them."""
    dice, seen = random.Random(seed), set[int]()
    total: dict[str, int] = {}
    for number, disk, said in instants(recording):
        diced = [Cut(cut.names, cut.data, dice.randrange(1 << 30)) for cut in DICED]
        cuts = [cut for cut in (*PLAIN, *diced) if dice.random() < share]
        found = survive(folder / "disk", recording, number, disk, said, cuts, seen, trials)
        for outcome, count in found.items():
            total[outcome] = total.get(outcome, 0) + count
    return total


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with damage.quick_folder(tmp_path) as quick:
        yield quick


@pytest.mark.promise("R2")
def test_what_some_power_cuts_leave_opens(folder: Path, recording: Recording, trials: Trials) -> None:
    seed = 1
    outcomes = sweep(folder, recording, 0.04, seed, trials)
    assert {"same", "over"} <= set(outcomes), f"seed {seed}: {outcomes}"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.promise("R2")
@pytest.mark.parametrize(("kills", "seed"), [(0, 10), (0, 11), (2, 12)])
def test_what_every_power_cut_leaves_opens(folder: Path, trials: Trials, kills: int, seed: int) -> None:
    """Every instant in every way; the diced ways are other ones with every seed."""
    outcomes = sweep(folder, record(folder / "recording", kills), 1, seed, trials)
    assert {"same", "next", "over"} <= set(outcomes), f"seed {seed}: {outcomes}"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.promise("R2")
def test_what_power_cuts_leave_of_a_server_that_goes_back_opens(
    folder: Path, recording: Recording, trials: Trials
) -> None:
    outcomes = sweep(folder, record_going_back(folder / "recording", recording), 0.5, 20, trials)
    assert {"same", "over"} <= set(outcomes), outcomes


# ------------------------------------------------------------------------------ to the end


def cut_at_random(flock: Flock, dice: random.Random, life: int, *flags: str) -> None:
    """Let the server come somewhere, cut its power, and put back what the disk may hold then."""
    base = powerloss.read(flock.folder / "disk")
    server, recorder = recorded(flock, life, *flags)
    server.wait_for("listening")
    if len(flock.programs) == 1:
        flock.client(HOST)
    server.wait_for("round_committed")
    time.sleep(dice.uniform(0, 0.1))  # the instant is the test's input, not a synchronisation
    server.kill()
    disk = Disk(flock.folder / "disk", base)
    for call in recorder.calls():
        disk.do(call)
    cut = dice.choice(DICED)
    shutil.rmtree(flock.folder / "disk")
    (flock.folder / "disk").mkdir()
    powerloss.write(disk.after(Cut(cut.names, cut.data, dice.randrange(1 << 30))), flock.folder / "disk")


def ended_after_power_cuts(folder: Path, seed: int) -> str:
    """Cut the server's power twice while its clients live on; return the hash of the final model."""
    dice, flock = random.Random(seed), flock_on_a_disk(folder)
    try:
        cut_at_random(flock, dice, 0, *LONGER)
        port = flock.programs[0].events("listening")[0]["address"].rpartition(":")[2]
        again = (*LONGER, f"--listen=127.0.0.1:{port}")
        cut_at_random(flock, dice, 1, *again)
        server = flock.server(*again)
        assert [server.ended(), flock.programs[1].ended()] == [0, 0]
        return flock.sha256()
    finally:
        flock.close()


@pytest.fixture(scope="session")
def undisturbed_by_cuts(tmp_path_factory: pytest.TempPathFactory) -> str:
    return processes.run_to_the_end(tmp_path_factory.mktemp("longer"), LONGER, (HOST,))


@pytest.mark.promise("R2")
def test_a_run_whose_server_loses_power_ends_in_the_same_bits(
    tmp_path: Path, undisturbed_by_cuts: str
) -> None:
    assert ended_after_power_cuts(tmp_path / "0", seed=0) == undisturbed_by_cuts


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R2")
@pytest.mark.parametrize("seed", range(1, 16))
def test_runs_whose_servers_lose_power_end_in_the_same_bits(
    tmp_path: Path, undisturbed_by_cuts: str, seed: int
) -> None:
    assert ended_after_power_cuts(tmp_path / str(seed), seed) == undisturbed_by_cuts, f"seed {seed}"
