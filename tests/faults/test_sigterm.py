"""SIGTERM in every phase of either end: gone within 10 s, exit code 0, and the run goes on to its bits."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from faults.conftest import Figure
from support import processes
from support.fault import Fault, Kind
from support.operator import pause, resume, status
from support.processes import Flock, Program, until
from support.proxy import Proxy
from support.strace import Tracer, needs_strace

pytestmark = pytest.mark.promise("R17")

RUN = ("--clients=2", "--rounds=3", "--seed=5", "--steps=20", "--deadline=60", "--model=mlp")
HIDDEN = "--model-arg=hidden=[1000,1000]"
SIZE = 4_300_000  # bytes of the model, a little less
WITHIN_S = 10.0
SYNCS = "fsync,fdatasync"


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of RUN, undisturbed."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("calm"), (*RUN, HIDDEN), ("c0", "c1"))


class Scene:
    """A run brought to where the signal shall come."""

    def __init__(self, flock: Flock, stack: ExitStack) -> None:
        self.flock, self.stack = flock, stack
        self.clients: dict[str, Program] = {}
        self.stopped: list[Program] = []
        self.tracer: Tracer | None = None

    def serve(self, *flags: str) -> None:
        self.server = self.flock.server(*RUN, HIDDEN, *flags)

    def join(self, *names: str) -> None:
        for name in names:
            self.clients[name] = self.flock.client(name)

    def join_through(self, name: str, target: str, when: int) -> Proxy:
        """Join over a connection that freezes when so many bytes have passed."""
        script = ((Fault(Kind.FREEZE, target, when),),)
        proxy = self.stack.enter_context(Proxy(lambda: self.flock.address, script))
        self.clients[name] = self.flock.client(name, f"--server={proxy.address}")
        return proxy

    def stop(self, name: str) -> None:
        self.clients[name].signal(signal.SIGSTOP)
        self.stopped.append(self.clients[name])

    def serve_slowly(self, calls: str, inject: str, *paths: Path) -> None:
        """Serve with system calls that take their time."""
        gate = self.flock.folder / "gate"
        self.server = self.flock.begin_server(*RUN, HIDDEN, gate=gate)
        self.tracer = Tracer(self.server, gate, calls, inject, paths)
        self.stack.callback(self.tracer.close)
        self.server.wait_for("listening")

    def ask(self, program: Program, figure: Figure, what: str) -> None:
        """Send SIGTERM; the process must have gone in time, well."""
        began = time.monotonic()
        program.signal(signal.SIGTERM)
        assert program.ended() == 0
        took_s = time.monotonic() - began
        figure(f"seconds from SIGTERM to the end, {what}", took_s)
        assert took_s <= WITHIN_S

    def go_on(self) -> None:
        while self.stopped:
            self.stopped.pop().signal(signal.SIGCONT)

    def finish(self) -> str:
        """Let the run end and return its hash."""
        self.go_on()
        for name in {"c0", "c1"} - set(self.clients):
            self.join(name)
        ends = [self.server, *self.clients.values()]
        assert [program.ended() for program in ends] == [0, 0, 0]
        return self.flock.sha256()


# ------------------------------------------------------------------------------ the server


def gathering(scene: Scene) -> None:
    scene.serve()
    scene.join("c0")
    scene.server.wait_for("client_joined")


def opened(scene: Scene) -> None:
    scene.serve()
    scene.join("c0", "c1")
    scene.server.wait_for("round_opened")
    scene.stop("c1")


def uploading(scene: Scene) -> None:
    scene.serve()
    scene.join("c0")
    scene.join_through("c1", "up", SIZE // 2).wait_for("up", SIZE // 2)


def committing(scene: Scene) -> None:
    scene.serve_slowly(SYNCS, "delay_enter=1000000:when=1+", *checkpoint(scene, 2))
    scene.join("c0", "c1")
    until(lambda: any(path.exists() for path in checkpoint(scene, 2)) or None, lambda: scene.server.text)


def committing_for_long(scene: Scene) -> None:
    """A disk that does not answer: the time to drain runs out."""
    scene.serve_slowly(SYNCS, "delay_enter=60000000:when=1+", *checkpoint(scene, 2))
    scene.join("c0", "c1")
    until(lambda: any(path.exists() for path in checkpoint(scene, 2)) or None, lambda: scene.server.text)


def checkpoint(scene: Scene, round: int) -> list[Path]:
    return [scene.flock.run_dir / "rounds" / f".tmp-{round:06d}" / "model.safetensors"]


def folding(scene: Scene) -> None:
    """The last update is read slowly when the round is closed."""
    spooled = scene.flock.run_dir / "spool" / "000002" / "000001.data"
    scene.serve_slowly("preadv,preadv2", "delay_enter=500000:when=1+", spooled)
    scene.join("c0", "c1")
    scene.server.wait_for("round_opened", round=2)
    until(lambda: bool(scene.tracer and scene.tracer.delayed) or None, lambda: scene.server.text)


def evaluating(scene: Scene) -> None:
    scene.serve("--eval-blocking")
    scene.join("c0", "c1")
    scene.server.wait_for("round_committed")


def paused(scene: Scene) -> None:
    scene.serve()
    scene.join("c0", "c1")
    scene.server.wait_for("round_opened")
    pause(scene.flock)
    scene.server.wait_for("run_paused")


def lingering(scene: Scene) -> None:
    """A client that is not there cannot hear that the run is over."""
    scene.serve()
    scene.join("c0", "c1")
    scene.server.wait_for("round_opened", round=3)
    scene.stop("c0")
    until(lambda: received(scene, "c1") or None, lambda: scene.server.text)
    scene.clients.pop("c1").kill()
    scene.go_on()
    scene.server.wait_for("run_ended")


def received(scene: Scene, name: str) -> bool:
    return any(member.received and member.client_id == name for member in status(scene.flock).members)


PHASES = (
    *(pytest.param(phase, id=phase.__name__) for phase in (opened, committing)),
    *(
        pytest.param(phase, id=phase.__name__, marks=pytest.mark.long)
        for phase in (gathering, uploading, folding, evaluating, paused)
    ),
)


@needs_strace
@pytest.mark.parametrize("phase", PHASES)
def test_a_server_that_is_asked_goes_and_comes_back(
    flock: Flock, calm: str, figure: Figure, phase: Callable[[Scene], None]
) -> None:
    with ExitStack() as stack:
        scene = Scene(flock, stack)
        phase(scene)
        scene.ask(scene.server, figure, "server")
        scene.server = flock.server()
        if phase is paused:  # it comes back as paused as it went
            resume(flock)
        assert scene.finish() == calm


@needs_strace
@pytest.mark.long
def test_a_disk_that_does_not_answer_keeps_no_server(flock: Flock, calm: str, figure: Figure) -> None:
    with ExitStack() as stack:
        scene = Scene(flock, stack)
        committing_for_long(scene)
        began = time.monotonic()
        scene.server.signal(signal.SIGTERM)
        assert "the time to drain is over" in scene.server.wait_for("parked")["reason"]
        took_s = time.monotonic() - began
        assert scene.tracer is not None
        scene.tracer.close()  # it holds what it traces
        assert scene.server.ended() == 0
        figure("seconds from SIGTERM to the end, server whose disk hangs", took_s)
        assert took_s <= WITHIN_S
        scene.server = flock.server()
        assert scene.finish() == calm


def test_a_server_that_lingers_goes_and_tells_the_rest_later(flock: Flock, calm: str, figure: Figure) -> None:
    with ExitStack() as stack:
        scene = Scene(flock, stack)
        lingering(scene)
        scene.ask(scene.server, figure, "server")
        scene.server = flock.server()
        assert scene.finish() == calm


@pytest.mark.long
@pytest.mark.parametrize("milliseconds", range(0, 800, 50))
def test_a_server_that_is_asked_while_it_starts_goes_too(
    flock: Flock, figure: Figure, milliseconds: int
) -> None:
    server = flock.begin_server(*RUN, HIDDEN)
    until(lambda: catches(server) or None, lambda: "a handler")  # before, there is only the interpreter
    time.sleep(milliseconds / 1000)  # the instant is the test's input, not a synchronisation
    Scene(flock, ExitStack()).ask(server, figure, "server that starts")


def catches(program: Program) -> bool:
    """Whether the process has a handler for SIGTERM."""
    status = Path(f"/proc/{program.process.pid}/status").read_text("utf-8")
    (caught,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


# ------------------------------------------------------------------------------ a client


def fetching(scene: Scene) -> None:
    scene.serve()
    scene.join("c0")
    scene.join_through("c1", "down", SIZE // 2).wait_for("down", SIZE // 2)


def training(scene: Scene) -> None:
    scene.serve()
    scene.join("c0")
    scene.join_through("c1", "down", 100 * SIZE).wait_for("down", SIZE)


def delivering(scene: Scene) -> None:
    scene.serve()
    scene.join("c0")
    scene.join_through("c1", "up", SIZE // 2).wait_for("up", SIZE // 2)


def waiting(scene: Scene) -> None:
    scene.serve()
    scene.join("c0", "c1")
    scene.server.wait_for("round_opened")
    scene.stop("c0")
    until(lambda: received(scene, "c1") or None, lambda: scene.server.text)


def seeking(scene: Scene) -> None:
    """The server is away."""
    scene.serve()
    scene.join("c0", "c1")
    scene.server.wait_for("round_opened")
    scene.server.kill()
    scene.clients["c1"].wait_for("server_not_reached")


ACTIVITIES = (
    *(pytest.param(activity, id=activity.__name__) for activity in (training, delivering)),
    *(
        pytest.param(activity, id=activity.__name__, marks=pytest.mark.long)
        for activity in (fetching, waiting, seeking)
    ),
)


@pytest.mark.parametrize("activity", ACTIVITIES)
def test_a_client_that_is_asked_goes_and_comes_back(
    flock: Flock, calm: str, figure: Figure, activity: Callable[[Scene], None]
) -> None:
    with ExitStack() as stack:
        scene = Scene(flock, stack)
        activity(scene)
        scene.ask(scene.clients.pop("c1"), figure, "client")
        if not scene.server.process.is_alive():
            scene.server = flock.server()
        assert scene.finish() == calm
