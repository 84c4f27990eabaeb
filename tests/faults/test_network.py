"""Bad networks between real processes: whatever a connection does, every update counts exactly once."""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from faults.conftest import RUN, Figure
from support import processes
from support.fault import Fault, Kind, Script, each
from support.processes import Flock
from support.promises import Trials
from support.proxy import Proxy

ENDS = ["c0", "c1", "c2"]


def run_through(flock: Flock, scripts: dict[str, Script], *flags: str) -> dict[str, Proxy]:
    """Run to the end with a proxy before every client that has a script; all must end well."""
    server = flock.server(*(flags or RUN))
    with ExitStack() as stack:
        proxies = {
            ids: stack.enter_context(Proxy(lambda: flock.address, script)) for ids, script in scripts.items()
        }
        clients = [flock.client(ids, f"--server={proxy.address}") for ids, proxy in proxies.items()]
        clients += [] if flags else flock.clients(*(ids for ids in ENDS if ids not in scripts))
        assert [server.ended(120), *(client.ended() for client in clients)] == [0] * (1 + len(clients))
    return proxies


def cuts(seed: int, target: str, most: int, connections: int = 8) -> Script:
    """So many connections that are reset after 1 to `most` bytes."""
    dice = random.Random(seed)
    return tuple((Fault(Kind.CUT, target, dice.randint(1, most)),) for _ in range(connections))


SCRIPTS: dict[str, Script] = {
    "delay": each(Kind.DELAY, "up", 0, 1, 0.01),
    "jitter": each(Kind.JITTER, "down", 0, 1, 0.02),
    "rate": each(Kind.RATE, "up", 0, 1, 200_000),
    "cut up": cuts(1, "up", 40_000),
    "cut down": cuts(2, "down", 40_000),
    "cut in the greeting": cuts(3, "up", 300, connections=5),
    "half close up": each(Kind.HALF_CLOSE, "up", 30_000, 5),
    "half close down": each(Kind.HALF_CLOSE, "down", 30_000, 5),
    "reply lost": each(Kind.REPLY_LOST, "up", 20_000, 8, 0.2),
    "reply lost early": each(Kind.REPLY_LOST, "up", 3_000, 8, 0.2),
    "freeze up": each(Kind.FREEZE, "up", 30_000, 1, 1.0),
    "freeze down": each(Kind.FREEZE, "down", 30_000, 1, 1.0),
    "duplicate": each(Kind.DUPLICATE, "up", 20_000, 4),
    "duplicate the greeting": each(Kind.DUPLICATE, "up", 1_500, 4),
}


@pytest.mark.promise("R6")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_bad_connection_changes_no_bit(flock: Flock, undisturbed: str, name: str) -> None:
    proxies = run_through(flock, {"c2": SCRIPTS[name]})
    hurt = sum(bool(faults) for faults in SCRIPTS[name][: proxies["c2"].connections])
    assert hurt, "no connection came as far as its fault"
    assert flock.sha256() == undisturbed, SCRIPTS[name]


@pytest.mark.long
@pytest.mark.promise("R6")
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_random_faults_on_every_connection_change_no_bit(flock: Flock, undisturbed: str, seed: int) -> None:
    dice = random.Random(seed)
    scripts: dict[str, Script] = {ids: tuple((anything(dice),) for _ in range(6)) for ids in ENDS}
    run_through(flock, scripts)
    assert flock.sha256() == undisturbed, scripts


def anything(dice: random.Random) -> Fault:
    kind = dice.choice([Kind.CUT, Kind.REPLY_LOST, Kind.HALF_CLOSE, Kind.FREEZE, Kind.DUPLICATE, Kind.DELAY])
    amount = {Kind.FREEZE: 0.5, Kind.DELAY: 0.005, Kind.REPLY_LOST: 0.1}.get(kind, 0.0)
    return Fault(kind, dice.choice(["up", "down"]), dice.randint(1, 60_000), amount)


# ------------------------------------------------------------------------------ at every place

TINY = ("--clients=2", "--rounds=2", "--seed=5", "--deadline=60", "--model=linear")
SWEEPS = {  # what happens to the first connection, and how far apart in bytes the places are
    "reply lost": (Fault(Kind.REPLY_LOST, "up", 0, 0.05), 80),
    "cut up": (Fault(Kind.CUT, "up", 0), 160),
    "cut down": (Fault(Kind.CUT, "down", 0), 160),
    "duplicate": (Fault(Kind.DUPLICATE, "up", 0), 160),
}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.promise("R6")
@pytest.mark.parametrize("name", SWEEPS)
def test_a_fault_at_every_place_of_a_connection_changes_no_bit(
    tmp_path: Path, trials: Trials, name: str
) -> None:
    """So the last byte of each message, and the one before its answer, are among them."""
    fault, step = SWEEPS[name]
    sound, size = tiny_run(tmp_path / "0", (), fault.target)
    for place in range(1, size, step):
        script = ((replace(fault, when=place),),)
        with trials(script):
            assert tiny_run(tmp_path / str(place), script, fault.target)[0] == sound
        shutil.rmtree(tmp_path / str(place))


def tiny_run(folder: Path, script: Script, target: str) -> tuple[str, int]:
    """Run with one client behind the proxy; return the final model's hash, and how much passed."""
    folder.mkdir()
    with processes.flock(folder) as flock:
        server = flock.server(*TINY)
        with Proxy(lambda: flock.address, script) as proxy:
            clients = [flock.client("c0"), flock.client("c1", f"--server={proxy.address}")]
            assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        return flock.sha256(), proxy.passed[target]


# ------------------------------------------------------------------------------ transfers go on

BIG = ("--clients=1", "--rounds=1", "--steps=0", "--eval-every=0", "--deadline=300", "--model=mlp")
HIDDEN = "--model-arg=hidden=[4000,2730]"  # 11.2 million parameters, 44.8 MB


@pytest.mark.promise("R7")
@pytest.mark.parametrize("target", ["up", "down"])
@pytest.mark.parametrize(("cuts", "step"), [(20, 2_200_000), (8, 5_000_000)])
def test_a_transfer_that_is_cut_sends_little_twice(
    flock: Flock, figure: Figure, target: str, cuts: int, step: int
) -> None:
    """So many bytes lie between two cuts, and so many cuts within one transfer."""
    proxies = run_through(flock, {"c0": each(Kind.CUT, target, step, cuts)}, *BIG, HIDDEN)
    size = (flock.run_dir / "model.safetensors").stat().st_size
    assert proxies["c0"].connections == cuts + 1
    ratio = proxies["c0"].passed[target] / size
    figure(f"bytes sent {target} / payload, {cuts} cuts", ratio)
    assert ratio <= 1.15
