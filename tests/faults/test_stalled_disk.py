"""A write that does not return: nobody else waits for it; the run goes on, the process goes when asked."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from faults.conftest import Figure
from support.operator import status
from support.processes import Flock, Program
from support.strace import Tracer, needs_strace

pytestmark = [needs_strace, pytest.mark.promise("R17")]

RUN = ("--clients=2", "--rounds=3", "--seed=5", "--min-updates=1", "--model=linear")
FOR_EVER = "delay_enter=300000000:when=1"
ANSWERS_S = 1.0


class Stalled:
    """A server whose first write of c1's first update does not return."""

    def __init__(self, flock: Flock, *flags: str) -> None:
        self.flock, gate = flock, flock.folder / "gate"
        self.server = flock.begin_server(*RUN, *flags, gate=gate)
        place = flock.run_dir / "spool"
        files = [place / folder / "000001.data" for folder in (".new", "000001")]
        self.tracer = Tracer(self.server, gate, "pwrite64", FOR_EVER, files)
        self.server.wait_for("listening")
        self.clients = [flock.client("c0"), flock.client("c1")]
        self.tracer.wait_until_it_holds(self.server)

    def answers_s(self) -> float:
        """Return how long the operator waits for an answer."""
        began = time.monotonic()
        status(self.flock)
        return time.monotonic() - began


@pytest.fixture
def scene(flock: Flock, request: pytest.FixtureRequest) -> Iterator[Stalled]:
    made = Stalled(flock, *request.param)
    try:
        yield made
    finally:
        made.tracer.close()


def left(server: Program, scene: Stalled) -> int:
    """Return how it ended; strace holds what it traces until then."""
    scene.tracer.close()
    return server.ended()


@pytest.mark.parametrize("scene", [("--deadline=2",)], indirect=True)
def test_a_write_that_does_not_return_keeps_neither_its_round_nor_the_run(
    scene: Stalled, figure: Figure
) -> None:
    figure("seconds until the operator is answered, a write stands still", answered_s := scene.answers_s())
    assert answered_s <= ANSWERS_S
    first = scene.server.wait_for("round_committed")
    assert (first["round"], first["not_counted"]) == (1, {"c1": "late"})
    scene.server.wait_for("ended", kind="completed")
    assert not scene.tracer.delayed, "the thread is still at it"
    assert left(scene.server, scene) == 0
    assert [client.ended() for client in scene.clients] == [0, 0]


@pytest.mark.parametrize("scene", [("--deadline=600", "--drain-timeout=5")], indirect=True)
def test_a_server_goes_when_it_is_asked_though_a_write_does_not_return(
    scene: Stalled, figure: Figure
) -> None:
    began = time.monotonic()
    scene.server.signal(signal.SIGTERM)
    scene.server.wait_for("parked")
    took_s = time.monotonic() - began
    figure("seconds from SIGTERM to the end, a write stands still", took_s)
    assert took_s <= 5
    assert left(scene.server, scene) == 0
    scene.server = scene.flock.server("--deadline=60")
    assert [scene.server.ended(), *(client.ended() for client in scene.clients)] == [0, 0, 0]
