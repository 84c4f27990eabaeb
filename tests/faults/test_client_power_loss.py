"""The power of a device fails at any instant: it goes on to the same bits, or says that its state is lost."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import damage, powerloss
from support.client_disk import Recording, go_on, instants, record, trying
from support.filecalls import Recorder
from support.powerloss import Cut, Disk, Fate
from support.processes import Flock, Program, run_to_the_end
from support.promises import Trials
from support.strace import needs_strace

pytestmark = needs_strace

CUTS = [(names, data) for names in Fate for data in Fate if names is not Fate.SIZE]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with damage.quick_folder(tmp_path) as quick:
        yield quick


async def sweep(folder: Path, recording: Recording, share: float, seed: int, trials: Trials) -> Counter[str]:
    """Cut the power at all instants in a share of the ways; let a client go on from what each leaves."""
    dice, seen, outcomes = random.Random(seed), set[int](), Counter[str]()
    async with trying(recording.codec) as trial:
        for instant in instants(recording):
            for names, data in CUTS:
                if dice.random() >= share:
                    continue
                cut = Cut(names, data, dice.randrange(1 << 30))
                image = instant.disk.after(cut)
                for round in instant.rounds:
                    same = hash((frozenset(image.items()), round))
                    if same in seen:
                        continue
                    seen.add(same)
                    with trials(f"cut after change {instant.number}, {cut}, asked for {round}"):
                        assert not instant.kept or image["state/identity.toml"] == recording.identity
                        place = folder / "cut"
                        outcomes[await go_on(trial, recording, image, round, place, cut.seed)] += 1
                    shutil.rmtree(folder / "cut")
    return outcomes


@pytest.mark.promise("R2")
def test_a_client_goes_on_after_some_power_cuts(folder: Path, trials: Trials) -> None:
    recording = record(folder / "recording", "topk:0.1")
    outcomes = asyncio.run(sweep(folder, recording, 0.03, 1, trials))
    assert {"same", "lost"} <= set(outcomes), outcomes


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.promise("R2")
@pytest.mark.parametrize("codec", ["identity", "fp16", "bf16", "int8", "topk:0.1", "topk:0.5+zstd"])
def test_a_client_goes_on_after_every_power_cut(folder: Path, trials: Trials, codec: str) -> None:
    recording = record(folder / "recording", codec)
    outcomes = asyncio.run(sweep(folder, recording, 1, 2, trials))
    assert set(outcomes) == ({"same", "lost"} if codec.startswith("topk") else {"same"}), outcomes


# ------------------------------------------------------------------------------ to the end

RUN = ("--clients=2", "--rounds=8", "--seed=5", "--deadline=60", "--model=linear")
METHODS = {  # those whose clients keep something from round to round, by themselves or for their codec
    "fedavg, topk": ("--method=fedavg", "--codec=topk:0.1"),
    "scaffold": ("--method=scaffold",),
    "scaffold, topk": ("--method=scaffold", "--codec=topk:0.1"),
    "feddyn": ("--method=feddyn",),
    "feddyn, int8": ("--method=feddyn", "--codec=int8"),
    "feddc": ("--method=feddc",),
    "fedtrip": ("--method=fedtrip",),
    "fedtrip, bf16": ("--method=fedtrip", "--codec=bf16+zstd"),
    "fedtr": ("--method=fedtr",),
    "moon": ("--method=moon", "--model=mlp"),
    "fedadm": ("--method=fedadm", "--set=tau=fixed:3"),
}


def cut_short(flock: Flock, dice: random.Random, life: int) -> Program:
    """Let a client come somewhere, cut its power, and put back what its disk may hold then."""
    disk_folder, gate = flock.folder / "disk", flock.folder / f"gate-{life}"
    base = powerloss.read(disk_folder)
    client = begin(flock, gate)
    recorder = Recorder(client, gate)
    client.wait_for("update_settled", count=dice.randint(1, 2))
    client.kill()
    disk = Disk(disk_folder, base)
    for call in recorder.calls():
        disk.do(call)
    names, data = dice.choice(CUTS)
    shutil.rmtree(disk_folder)
    disk_folder.mkdir()
    powerloss.write(disk.after(Cut(names, data, dice.randrange(1 << 30))), disk_folder)
    return client


def begin(flock: Flock, gate: Path | None = None) -> Program:
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / 'disk' / 'state'}")
    return flock.start("fl-client", "--id=c1", *place, "--give-up-after=60", gate=gate)


def check_cuts(folder: Path, method: tuple[str, ...], seed: int) -> None:
    """A device whose power is cut twice: the bits of the undisturbed run, or the word that they are lost."""
    flock, dice = Flock(folder), random.Random(seed)
    for name in ("disk", "undisturbed"):
        (folder / name).mkdir(parents=True)
    undisturbed = run_to_the_end(folder / "undisturbed", (*RUN, *method), ("c0", "c1"))
    try:
        server, other = flock.server(*RUN, *method), flock.client("c0")
        for life in range(2):
            cut_short(flock, dice, life)
        last = begin(flock)
        assert [server.ended(), other.ended(), last.ended()] == [0, 0, 0]
        lost = any(program.events("state_lost") for program in flock.programs[2:])
        assert lost or flock.sha256() == undisturbed
    finally:
        flock.close()


@pytest.mark.promise("R2")
def test_a_run_whose_client_loses_power_ends_in_the_same_bits_or_says_so(tmp_path: Path) -> None:
    check_cuts(tmp_path, METHODS["scaffold, topk"], seed=3)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R2")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", METHODS)
def test_runs_whose_clients_lose_power_end_in_the_same_bits_or_say_so(
    tmp_path: Path, method: str, seed: int
) -> None:
    check_cuts(tmp_path, METHODS[method], seed)
