"""A server of a tiny run in this process, made of the server's own parts, and a client of raw messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.common.wire.transport import PROTOCOL, channel_options, server_options
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.registry import load
from edgeflock.server.core.effects import Effect
from edgeflock.server.core.events import Event, Ticked
from edgeflock.server.core.phases import Phase
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.run import RunMachine
from edgeflock.server.core.testing import Tests
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.ledger import Ledger
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.bookkeeping import Bookkeeping
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.intake import Intake
from edgeflock.server.engine.loop import Threads
from edgeflock.server.engine.means import Files, Means
from edgeflock.server.engine.scoring import Scoring
from edgeflock.server.engine.transfer import Header, Slot
from edgeflock.server.engine.verdicts import Verdicts
from edgeflock.server.engine.views import RunStatus
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.spool import Spool
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.past import PastScores, Resumed
from edgeflock.server.journal.schema import connect
from edgeflock.server.learning.learner import Learner
from edgeflock.server.learning.work import RoundWork
from edgeflock.server.service.aggregator import AggregatorService
from edgeflock.server.service.binding import add_aggregator, add_control
from edgeflock.server.service.sessions import Sessions
from edgeflock.server.start import startup
from edgeflock.server.start.recovery import Asked
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc
from edgeflock.v1 import bundle_pb2, control_pb2_grpc
from support import loopwatch
from support.rows import events, rows
from support.scored import MARKING
from support.tiny_run import Made, describe, layouts, learner, update

WAIT_S = 20
MIB = 1 << 20
NAME = "edgeflock.v1.Aggregator"
Talk = Callable[["Served"], Awaitable[None]]
OperatorsTalk = Callable[["Served", Any], Awaitable[None]]  # with the stub of the operator's service


class WatchedMachine(RunMachine):
    """A machine that says when something has happened."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.moved = asyncio.Event()

    def handle(self, event: Event) -> list[Effect]:
        self.moved.set()  # who waits looks when its effects are begun
        return super().handle(event)


class Motion:
    """A run in motion, reached through its intake as by everybody else."""

    def __init__(self, machine: WatchedMachine, means: Means, sessions: Sessions) -> None:
        self.machine, self.means, self.sessions = machine, means, sessions
        self.engine = Engine(machine, means, sessions)
        self.learner, self.journal = means.learner, means.journal
        self.intake, self.ended = Intake(self.engine), self.engine.ended

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until the predicate holds; it is looked at after every event."""
        async with asyncio.timeout(WAIT_S):
            while not predicate():
                self.machine.moved.clear()
                await self.machine.moved.wait()

    async def gather(self) -> None:
        """Let everybody of the roster come, take a seat and be ready."""
        names = [f"c{seat}" for seat in range(self.machine.rules.clients)]
        for name in names:
            assert self.intake.join(name) is None
            assert self.intake.online(name) is None
        await self.until(lambda: all(map(self.intake.seated, names)))
        for name in names:
            self.intake.ready(name, 10)
        await self.open(1)

    async def open(self, round: int) -> None:
        await self.until(lambda: (self.now.round, self.now.phase) == (round, Phase.OPEN))

    async def committed(self, round: int) -> None:
        await self.until(lambda: self.now.committed >= round)

    @property
    def now(self) -> RunStatus:
        """Where the run is."""
        return self.intake.status()

    @property
    def online(self) -> set[str]:
        return {one.client_id for one in self.now.members if one.online}

    @property
    def cohort(self) -> tuple[int, ...]:
        """The seats of those who take part in the round at hand."""
        return tuple(one.seat for one in self.now.members if one.in_cohort and one.seat is not None)

    @property
    def received(self) -> list[int]:
        """The seats of those whose updates are here."""
        return [one.seat for one in self.now.members if one.received and one.seat is not None]

    @property
    def work(self) -> RoundWork:
        """What is asked in the open round."""
        views = (self.intake.view(f"c{seat}") for seat in self.cohort)
        return next(view.work for view in views if view.work is not None)

    def overdue(self) -> None:
        """Let the deadline of the open round be over."""
        deadline = self.now.deadline
        assert deadline is not None
        self.engine.post(Ticked(deadline))

    async def deliver(self, made: Made, index: int, **costs: float) -> None:
        """Hand in an update of the open round without a network."""
        await self.hand_in(Description(self.now.round, made.package, 1, made.scores), made, index, **costs)

    async def hand_in(self, described: Description, made: Made, index: int, **costs: float) -> None:
        """The same of one that is described already."""
        header = Header(described, costs)
        slot = await self.intake.offer(f"c{index}", header)
        assert isinstance(slot, Slot), slot
        if not slot.full:
            assert await slot.begin() is None
            if rest := made.payload[slot.held :]:
                assert await slot.append(slot.held, rest, extend(0, made.payload)) is None
            assert await slot.complete() is None


class Home:
    """A run directory and what is fixed about its run; it can be served again and again."""

    def __init__(
        self,
        root: Path,
        *,
        clients: int = 3,
        rounds: int = 3,
        cohort: int = 0,
        min_updates: int = 0,
        numbers: int = 40,
        credit_bytes: int = 32 * MIB,
        codec: str = "identity",
        method: str | Method = "fedavg",
        client_tests: tuple[str, ...] = (),
        eval_every: int = 1,
        budget: Budget | None = None,
        keep_every: int = 0,
        **rules: Any,
    ) -> None:
        self.run_dir = root / "run"
        self.run_dir.mkdir(exist_ok=True)
        self.layouts = layouts(numbers)
        self.method, self.codec, self.credit_bytes = method, codec, credit_bytes
        self.client_tests, self.eval_every = client_tests, eval_every
        self.budget, self.keep_every = budget, keep_every
        self.more = False  # whether more is asked of the run than before
        size = cohort or clients
        closes = (load(method) if isinstance(method, str) else method).closes
        self.rules = Rules(
            rounds=rounds,
            clients=clients,
            cohort=size,
            min_updates=min_updates or size,
            seed=3,
            closes=closes,
            **rules,
        )

    @property
    def journal_path(self) -> Path:
        return self.run_dir / rundir.JOURNAL

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return rows(self.journal_path, statement)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the fields of every event of that name in the journal."""
        return events(self.journal_path, name)

    def change(self, statement: str) -> None:
        """Change what the journal holds, between two lives of the server."""
        with contextlib.closing(connect(self.journal_path)) as connection:
            connection.execute(statement)

    def seat(self) -> Home:
        """Let every client have its seat from the beginning."""
        self.resume()
        places = ", ".join(f"({seat}, 'c{seat}', 10)" for seat in range(self.rules.clients))
        self.change(f"INSERT INTO seats (seat, client_id, samples) VALUES {places}")
        return self

    def assemble(self) -> tuple[Resumed, Learner, Files]:
        """Come back to where the run is, or make its beginning."""
        with contextlib.closing(Journal(self.journal_path)) as journal:
            return self._assemble(journal)

    def resume(self) -> Resumed:
        """Return what the journal holds; make it if there is none."""
        with contextlib.closing(Journal(self.journal_path)) as journal:
            return startup.resume(journal)

    def _assemble(self, journal: Journal) -> tuple[Resumed, Learner, Files]:
        resumed = startup.resume(journal)
        brain = learner(self.layouts, method=self.method, clients=self.rules.clients, codec=self.codec)
        files = Files(Checkpoints(self.run_dir, self.layouts), Spool(self.run_dir / "spool"), self.keep_every)
        asked = Asked(self.rules.rounds, self.more)
        startup.begin_or_recover(resumed, journal, brain, files, asked)
        return resumed, brain, files

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Motion]:
        """The run in motion, without a network."""
        journal = Journal(self.journal_path)
        resumed, brain, files = self._assemble(journal)
        traffic, ledger, threads = TrafficBook(), Ledger(), Threads()
        tests = Tests(self.eval_every, self.rules.rounds, clients=self.client_tests)
        machine = WatchedMachine(self.rules)
        means = Means(
            journal=journal,
            files=files,
            learner=brain,
            bookkeeping=Bookkeeping(ledger, traffic, self.budget or Budget(), brain, journal),
            scoring=Scoring(None, tests, ledger.time_line, threads, MARKING),
            verdicts=Verdicts(journal, resumed.newest),
            threads=threads,
            samples=machine.roster.samples,
        )
        motion = Motion(machine, means, Sessions(traffic))
        await motion.engine.begin(startup.started(resumed, PastScores(None, {}, None)))
        with loopwatch.watched() as touched:
            try:
                yield motion
            finally:
                await motion.engine.close()
                journal.close()
        assert touched == [], "nothing on the event loop waits for a disk"

    @asynccontextmanager
    async def serve(self, *control: str) -> AsyncIterator[Served]:
        """The run on a port of this machine, and the operator's service where asked."""
        async with self.run() as run:
            server = grpc.aio.server(options=server_options())
            described = describe(self.layouts, self.rules.clients)
            service = add_aggregator(
                server, run.intake, run.sessions, described, credit_bytes=self.credit_bytes
            )
            if control:
                add_control(server, run.intake, run.sessions, run.journal, "tiny", self.run_dir)
            ports = [server.add_insecure_port(address) for address in control]
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            served = Served(self, run, service, port, ports, [])
            try:
                yield served
            finally:
                for peer in served.peers:
                    await peer.close()
                await server.stop(1.0)


def serve(home: Home, talk: Talk) -> None:
    """Serve the run while the talk goes on."""

    async def both() -> None:
        async with asyncio.timeout(3 * WAIT_S), home.serve() as served:
            await talk(served)

    asyncio.run(both())


def operate(home: Home, talk: OperatorsTalk, *, loopback: bool = False) -> None:
    """Serve the run and talk to it, as its clients and as its operator."""
    socket = f"unix:{home.run_dir}/control.sock"

    async def both() -> None:
        async with asyncio.timeout(3 * WAIT_S), home.serve("127.0.0.1:0" if loopback else socket) as served:
            target = f"127.0.0.1:{served.control_ports[0]}" if loopback else socket
            async with grpc.aio.insecure_channel(target) as channel:
                await talk(served, control_pb2_grpc.ControlStub(channel))

    asyncio.run(both())


@dataclass
class Served:
    """A server that listens."""

    home: Home
    run: Motion
    service: AggregatorService
    port: int
    control_ports: list[int]
    peers: list[Peer]

    def held(self, index: int) -> int:
        """Return how much is here of a client's update that is on its way."""
        session = self.run.sessions.by_id(f"c{index}")
        return session.arriving.held if session is not None and session.arriving is not None else 0

    def peer(self, name: str = "c0", instance: bytes = b"") -> Peer:
        """Return a client that has said nothing yet."""
        peer = Peer(self, name, instance or name.encode().ljust(16, b"-")[:16])
        self.peers.append(peer)
        return peer

    async def gather(self) -> list[Peer]:
        """Let every client of the roster join, watch and be ready; return them by index."""
        names = [f"c{index}" for index in range(self.home.rules.clients)]
        peers = [self.peer(name) for name in names]
        for peer in peers:
            await peer.enter()
        for peer in peers:
            await peer.ready()
        await self.run.open(max(1, self.run.now.round))
        return peers

    def made(self, index: int, **changes: Any) -> Made:
        """Return that client's update of the open round."""
        return update(self.home.layouts, index, self.run.now.round, codec=self.home.codec, **changes)

    async def finish_round(self, peers: list[Peer], order: list[int] | None = None) -> None:
        """Let everybody deliver, one after the other."""
        number = self.run.now.round
        for index in order or range(len(peers)):
            answer = await peers[index].deliver(self.made(index))
            assert answer.WhichOneof("message") in ("received", "outcome"), answer
        await self.run.committed(number)

    async def check_alive(self) -> None:
        """A normal round still completes: everybody comes anew and delivers."""
        peers = await self.gather()
        await self.finish_round(peers)

    async def fetch_model(self, peer: Peer) -> tuple[bundle_pb2.Package, bytes]:
        task = (await peer.view(lambda view: view.HasField("task"))).task
        answers = await peer.fetch(
            round=task.round, scope=pb.SCOPE_SHARED, digest=task.downloads[0].package.digest
        )
        return task.downloads[0].package, b"".join(answer.chunk.data for answer in answers)


class Peer:
    """One raw client."""

    def __init__(self, served: Served, name: str, instance: bytes) -> None:
        self.name, self.instance = name, instance
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{served.port}", options=channel_options())
        self.stub: Any = rpc.AggregatorStub(self.channel)
        self.session = b""
        self.watching: Any = None
        self.last = pb.View()  # seen
        self.calls: list[Any] = []
        self._served = served

    async def join(self, **changes: Any) -> pb.JoinResponse:
        request = {
            "protocol": PROTOCOL,
            "software": "test",
            "client_id": self.name,
            "instance_id": self.instance,
            **changes,
        }
        answer: pb.JoinResponse = await self.stub.Join(pb.JoinRequest(**request), timeout=WAIT_S)
        if answer.HasField("admission"):
            self.session = answer.admission.session
        return answer

    def watch(self) -> None:
        """Open the stream; an older one stays open and is not read any more."""
        self.watching = self.stub.Watch(pb.WatchRequest(session=self.session), timeout=WAIT_S)
        self.calls.append(self.watching)

    async def answer(self) -> pb.WatchResponse:
        read: pb.WatchResponse = await self.watching.read()
        return read

    async def view(self, wanted: Callable[[pb.View], bool]) -> pb.View:
        """Read views until one is as wanted."""
        while True:
            answer = await self.answer()
            assert answer.HasField("view"), answer
            self.last = answer.view
            if wanted(self.last):
                return self.last

    async def enter(self, **request: Any) -> None:
        """Join, and watch until the server has noticed."""
        answer = await self.join(**request)
        assert answer.HasField("admission"), answer
        self.watch()
        await self.view(lambda view: True)

    async def report(self, **report: Any) -> pb.ReportResponse:
        request = pb.ReportRequest(session=self.session, **report)
        answered: pb.ReportResponse = await self.stub.Report(request, timeout=WAIT_S)
        return answered

    async def ready(self, samples: int = 10) -> None:
        if not self.last.HasField("seat"):
            await self.view(lambda view: view.HasField("seat"))
        digest = self._served.home.layouts.parameters.digest
        answer = await self.report(ready=pb.Ready(samples=samples, layout_digest=digest))
        assert not answer.HasField("refusal"), answer

    async def fetch(self, **request: Any) -> list[pb.FetchResponse]:
        call = self.stub.Fetch(pb.FetchRequest(session=self.session, **request), timeout=WAIT_S)
        return [answer async for answer in call]

    def upload(self) -> Upload:
        upload = Upload(self.stub.Deliver(timeout=WAIT_S))
        self.calls.append(upload.call)
        return upload

    async def close(self) -> None:
        """Go without a word; a channel that is closed does not end the calls that nobody awaits."""
        for call in self.calls:
            call.cancel()
        await self.channel.close()

    async def deliver(
        self, made: Made, *, round: int | None = None, chunk: int = MIB, cut: int | None = None
    ) -> pb.DeliverResponse:
        """Deliver under credit and return the last answer; with `cut`, stop after so many bytes."""
        number = self._served.run.now.round if round is None else round
        upload = self.upload()
        await upload.send(header=made.header(self.session, number))
        answer = await upload.read()
        if answer.WhichOneof("message") != "credit":
            return answer
        answer = await upload.feed(made.payload, answer.credit, chunk, cut)
        if cut is not None:
            upload.call.cancel()
        return answer


@dataclass
class Upload:
    """One Deliver stream."""

    call: Any
    sent: int = 0  # bytes of payload

    async def send(self, **message: Any) -> None:
        await self.call.write(pb.DeliverRequest(**message))

    async def chunk(self, offset: int, data: bytes, checksum: int) -> None:
        await self.send(chunk=bundle_pb2.Chunk(offset=offset, data=data, crc32c=checksum))
        self.sent += len(data)

    async def read(self) -> pb.DeliverResponse:
        answer = await self.call.read()
        assert isinstance(answer, pb.DeliverResponse), "the server ended the stream without an answer"
        return answer

    async def feed(
        self, payload: bytes, credit: pb.Credit, chunk: int, cut: int | None
    ) -> pb.DeliverResponse:
        """Send as far as credit goes, wait for more, until all is sent or cut; return the last answer."""
        offset, limit = credit.held, credit.limit
        running, end = extend(0, payload[:offset]), len(payload) if cut is None else cut
        answer = pb.DeliverResponse(credit=credit)
        while offset < end:
            while limit <= offset:
                answer = await self.read()
                if answer.WhichOneof("message") != "credit":
                    return answer
                limit = answer.credit.limit
            data = payload[offset : min(offset + chunk, limit, end)]
            running = extend(running, data)
            await self.chunk(offset, data, running)
            offset += len(data)
        while cut is None and answer.WhichOneof("message") == "credit":
            answer = await self.read()
        return answer
