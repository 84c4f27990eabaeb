"""Runs of every kind that there can be, played by real processes: what they cost is to be one number."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from support import operator, spool_logs
from support.fault import Kind, each
from support.processes import Flock, Program, until
from support.proxy import Proxy

RUN = ("--clients=3", "--rounds=8", "--model=linear", "--eval-every=2")
LONG = ("--clients=3", "--rounds=8", "--model=linear", "--eval-every=0", "--epochs=10")
ENDLESS = ("--clients=3", "--rounds=8", "--model=linear", "--eval-every=0", "--epochs=1000000")
WATTS = "--watts=4"
Play = Callable[[Flock], None]


def completed(flock: Flock) -> None:
    """Two hosted clients and one alone, a cohort of two, a codec, tests of clients' own models."""
    _to_the_end(flock, *RUN, "--method=fedtr", "--cohort=2", "--codec=int8", "--budget=energy=90kJ")


def cut_in_mid_round(flock: Flock) -> None:
    """By time, in the first round: nothing is committed, all was paid."""
    _to_the_end(flock, *ENDLESS, "--budget=time=1s")


def cut_by_bytes(flock: Flock) -> None:
    _to_the_end(flock, *RUN, "--budget=bytes=40000")


def cut_by_cpu(flock: Flock) -> None:
    """By its allowances, so that clients deliver what they have done."""
    _to_the_end(flock, *ENDLESS, "--budget=cpu=2s", "--min-updates=1")


def at_its_target(flock: Flock) -> None:
    """The round after it is discarded."""
    _to_the_end(flock, *RUN, "--target=accuracy=0.2")


def by_its_method(flock: Flock) -> None:
    flags = ("--method=fedadm", "--clock=simulated", "--budget=time=3s", "--rounds=30")
    _to_the_end(flock, "--clients=3", "--model=linear", *flags)


def parked(flock: Flock) -> None:
    server, clients = _begun(flock, *LONG)
    server.wait_for("round_committed", count=2)
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    for client in clients:
        client.kill()


def parked_and_resumed(flock: Flock) -> None:
    """Its clients are long in coming back: that is no time of its rounds."""
    parked(flock)
    _to_the_end(flock)


def server_killed(flock: Flock) -> None:
    server, clients = _begun(flock, *LONG, "--budget=cpu=1h")
    for count in (2, 5):
        server.wait_for("round_committed", count=count - 1 if count == 2 else 2)
        server.kill()
        server = flock.server()
    _ended(server, *clients)


def client_killed_between_training_and_verdict(flock: Flock) -> None:
    """Its update is delivered, another's is not: the round goes on when it is back."""
    server, (pair, one) = _begun(flock, *LONG, "--deadline=60")
    server.wait_for("round_committed")
    one.signal(signal.SIGSTOP)
    until(lambda: _waits_for_one(flock), lambda: "two updates of the open round")
    pair.kill()
    pair = flock.client("c0,c1", WATTS)
    one.signal(signal.SIGCONT)
    _ended(server, pair, one)


def late_members(flock: Flock) -> None:
    server, (pair, one) = _begun(flock, *LONG, "--cohort=2", "--over-select=1", "--deadline=60")
    server.wait_for("round_committed")
    one.signal(signal.SIGSTOP)
    server.wait_for("round_committed", count=4)
    one.signal(signal.SIGCONT)
    _ended(server, pair, one)


def paused(flock: Flock) -> None:
    """By an operator, between two rounds."""
    server, clients = _begun(flock, *LONG, "--budget=time=1h")
    server.wait_for("round_committed", count=2)
    operator.pause(flock)
    server.wait_for("run_paused")
    operator.resume(flock)
    _ended(server, *clients)


def cut_off_in_mid_transfer(flock: Flock) -> None:
    server = flock.server(*RUN, "--model=mlp", "--codec=int8")
    script = (*each(Kind.CUT, "up", 30_000, 3), *each(Kind.CUT, "down", 30_000, 3))
    with Proxy(lambda: flock.address, script) as proxy:
        clients = [flock.client("c0,c1", WATTS), flock.client("c2", WATTS, f"--server={proxy.address}")]
        _ended(server, *clients)


def with_refused_tasks(flock: Flock) -> None:
    """One client's own model raises in every training: it fetches and begins, and the others go on."""
    model = "--model=support.custom_models:"
    flags = ("--clients=3", "--rounds=3", "--batch-size=16", "--min-updates=2", "--deadline=60")
    server = flock.server(*flags, f"{model}plain", "--eval-every=2")
    pair, one = flock.client("c0,c1", WATTS, f"{model}plain"), flock.client("c2", WATTS, f"{model}touchy")
    _ended(server, pair, one)
    assert len(one.events("task_refused")) == 2  # the first and the second time; the third is no news
    told = "SELECT round, cpu_s > 0, fetch_s > 0 FROM costs WHERE seat = 2 AND cpu_s IS NOT NULL"
    assert flock.rows(told) == [(3, 1, 1)]  # it came to nothing, and was paid


def gone_back(flock: Flock) -> None:
    """The newest checkpoint is damaged and its spool is gone: an older state, in a new epoch."""
    parked(flock)
    newest = max((flock.run_dir / "rounds").iterdir(), key=lambda path: path.name)
    (newest / "model.safetensors").write_bytes(b"")
    _remove(flock.run_dir / "spool")
    _to_the_end(flock)


QUICK: tuple[Play, ...] = (completed, cut_in_mid_round, parked_and_resumed)
SLOW: tuple[Play, ...] = (
    parked,
    cut_by_bytes, cut_by_cpu, at_its_target, by_its_method, server_killed, late_members, paused, gone_back,
    with_refused_tasks, client_killed_between_training_and_verdict, cut_off_in_mid_transfer,
)  # fmt: skip


# ----------------------------------------------------------------------------------- what they are made of


def _begun(flock: Flock, *flags: str) -> tuple[Program, list[Program]]:
    server = flock.server(*flags)
    return server, [flock.client("c0,c1", WATTS), flock.client("c2", WATTS)]


def _to_the_end(flock: Flock, *flags: str) -> None:
    server, clients = _begun(flock, *flags)
    _ended(server, *clients)


def _ended(*programs: Program) -> None:
    assert [program.ended() for program in programs] == [0] * len(programs)


def _waits_for_one(flock: Flock) -> bool | None:
    """Whether the spool holds the updates of all members but one."""
    opened = flock.rows("SELECT max(round) FROM rounds WHERE committed = 0")[0][0]
    if opened is None:
        return None
    return True if sum(spool_logs.sent(flock.run_dir, opened, seat) for seat in range(3)) >= 2 else None


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
