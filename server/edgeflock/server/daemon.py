"""The server's life: take the run directory, come back to where the run is, serve, drain, say the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial

import grpc
import structlog
import torch
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edgeflock.common.allocator import keep_pages
from edgeflock.common.command import signals
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.common.wire.address import Address, parse_address
from edgeflock.common.wire.listen import listening
from edgeflock.common.wire.transport import server_options
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig, listen_address
from edgeflock.server.console.console import Console
from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.intake import Intake
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.journal.journal import Journal
from edgeflock.server.service import certificates
from edgeflock.server.service.binding import AGGREGATOR, add_aggregator, add_control
from edgeflock.server.service.central import CentralTrainer
from edgeflock.server.service.certificates import Certificates
from edgeflock.server.service.sessions import Sessions
from edgeflock.server.service.status import status_of
from edgeflock.server.start import build as assembly
from edgeflock.server.start import event_files, means, startup
from edgeflock.server.start.event_files import EventFiles
from edgeflock.server.start.resolve import here_only
from edgeflock.server.start.startup import Parts
from edgeflock.server.start.versions import versions
from edgeflock.server.web.child import Dashboard
from edgeflock.server.web.standing import stay

log = structlog.get_logger()

_LONGEST_SOCKET = 100  # bytes of a Unix socket's path that every system takes
_STREAMS_GRACE_S = 1.0
_GOODBYE_S = 5.0  # for clients that have heard the end to say what the last round took, and leave
_unfinished: list[object] = []  # ends with the process
_HINT = "start fl-server on this run directory to go on"


def run(config: ServerConfig, console: Console) -> int:
    """Serve the run of that configuration, in view of a console, and return the process's exit code."""
    keep_pages()
    torch.set_num_threads(1)  # more threads give other bits (DESIGN rule 9)
    assert config.run_dir is not None
    run_dir = config.run_dir.absolute()
    if (over := startup.already_over(run_dir, config)) is not None:
        log.info("run_is_over", run_dir=str(run_dir), kind=str(over.kind), reason=over.reason)
        return 0
    event_files.check(config)
    if not run_dir.exists():
        _check_free(listen_address(config))
    built = startup.build(config)
    with rundir.locked(run_dir), startup.taken_up(built, run_dir) as parts:
        ending, asked = asyncio.run(_serve(parts, console))
        _farewell(parts, ending, asked)
    console.close()
    if ending is not None and not asked and sys.stderr.isatty():
        stay(config, run_dir)
    if ending is not None and ending.kind is EndingKind.FAILED:
        raise EdgeflockError(ending.reason)
    return 0


# ------------------------------------------------------------------------------------------ serving


async def _serve(parts: Parts, console: Console) -> tuple[Ended | None, str]:
    """Serve until the run ends or a signal asks to go; return the ending, and the signal's name."""
    journal, resumed = parts.journal, parts.resumed
    traffic = TrafficBook()
    sessions = Sessions(traffic)
    engine = Engine(RunMachine(assembly.build_rules(parts.config)), means.make(parts, traffic), sessions)
    intake = Intake(engine)
    with _signals(intake, parts.config) as asked:
        trusted = certificates.read(parts.config)
        server, address = await _bound(parts, intake, sessions, trusted)
        control, control_address = _bound_control(parts, intake, sessions, journal)
        dashboard = Dashboard.bound(parts.config, parts.run_dir)
        fields = {"run_id": resumed.meta["run_id"], "round": resumed.committed, "epoch": resumed.epoch}
        if parts.config.budget:
            fields["budget"] = parts.config.budget
        told = {"method": parts.config.method, "rounds": parts.config.rounds, **versions()}
        journal.note("run_started", **fields, **told)
        log.info("run_started", **fields, run_dir=str(parts.run_dir), method=parts.config.method)
        await engine.begin(startup.started(resumed))
        central = _take_part(parts, engine, intake, sessions)
        await server.start()  # now, not before: the machine knows the seats when the first client comes
        await control.start()
        rundir.write_small(parts.run_dir / rundir.CONTROL, f"{control_address.target}\n")
        rundir.write_small(parts.run_dir / rundir.ADDRESS, f"{address.target}\n")
        log.info("listening", address=address.target, transport=trusted.words if trusted else "plain text")
        if words := here_only(parts.config):
            log.info("listening_here_only", reason=words)
        watching = asyncio.create_task(_watch(trusted, journal)) if trusted else None
        console.follow(partial(status_of, intake, sessions, resumed.meta["run_id"], str(parts.run_dir)))
        dashboard.start()
        scalars = EventFiles(parts.config, parts.run_dir)
        await scalars.start()
        ending = await engine.ended
        if central is not None:
            central.stop()
        if intake.status().ending is not None and await _linger(intake, asked, parts.config.linger):
            journal.farewell()
        if watching is not None:
            watching.cancel()
        await _stop(server)
        await engine.close()
        await asyncio.to_thread(journal.close)  # now, so that the last thing viewers see is the whole story
        await dashboard.end()
        await _stop(control)
        await scalars.end()
        return ending, asked.result() if asked.done() else ""


def _take_part(parts: Parts, engine: Engine, intake: Intake, sessions: Sessions) -> CentralTrainer | None:
    """Let the server train where the method says so."""
    if parts.union is None:
        return None
    bench = Workbench(assembly.build_net(parts.config, parts.test), threads=1)
    central = CentralTrainer(intake, sessions, parts.learner, bench, parts.union)
    engine.accompany(central.run())
    return central


async def _watch(trusted: Certificates, journal: Journal) -> None:
    """Say in log and journal when the certificate's time comes."""

    def tell(reason: str) -> None:
        log.warning("certificate", reason=reason)
        journal.note("certificate", reason=reason)

    await certificates.watch(trusted.pair, tell)


async def _bound(
    parts: Parts, intake: Intake, sessions: Sessions, trusted: Certificates | None
) -> tuple[grpc.aio.Server, Address]:
    """Bind the clients' service: what cannot be bound is said before anything is decided."""
    config = parts.config
    server = grpc.aio.server(options=server_options())
    certified = trusted is not None and trusted.clients is not None
    credit_bytes = config.credit_mib * 1024 * 1024
    add_aggregator(server, intake, sessions, parts.run, credit_bytes=credit_bytes, certified=certified)
    healthy = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue] - made at import
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    if config.reflection:
        _add_reflection(server)
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    await healthy.set(AGGREGATOR, health_pb2.HealthCheckResponse.SERVING)
    credentials = trusted.credentials() if trusted else None
    return server, _bind(server, _wanted_address(parts), "--listen", credentials)


def _wanted_address(parts: Parts) -> Address:
    """On resume a free port is the one that the clients already know."""
    address = listen_address(parts.config)
    before = rundir.read_small(parts.run_dir / rundir.ADDRESS)
    if address.path or address.port or not before:
        return address
    return address.with_port(parse_address(before, rundir.ADDRESS).port)


def _bind(
    server: grpc.aio.Server, address: Address, flag: str, credentials: grpc.ServerCredentials | None = None
) -> Address:
    try:
        if credentials is None:
            port = server.add_insecure_port(address.target)
        else:
            port = server.add_secure_port(address.target, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise UsageError(f"{flag} {address.target} cannot be bound: it is in use or not of this machine")
    return address if address.path else address.with_port(port)


def _check_free(address: Address) -> None:
    """Refuse a place that cannot be bound before there is a run directory, or any work."""
    if address.path:
        return
    try:
        listening(address)[0].close()
    except OSError as error:
        other = address.with_port(address.port % 65535 + 1).target
        way = f"; give another port, such as --listen {other}, and fl-client the same"
        why = f"{error.strerror or error}{way if error.errno == errno.EADDRINUSE else ''}"
        raise UsageError(f"--listen {address.target} cannot be bound: {why}") from None


def _add_reflection(server: grpc.aio.Server) -> None:
    from grpc_reflection.v1alpha import reflection

    reflection.enable_server_reflection((AGGREGATOR, health.SERVICE_NAME, reflection.SERVICE_NAME), server)


def _bound_control(
    parts: Parts, intake: Intake, sessions: Sessions, journal: Journal
) -> tuple[grpc.aio.Server, Address]:
    server = grpc.aio.server(options=server_options())
    add_control(server, intake, sessions, journal, parts.resumed.meta["run_id"], parts.run_dir)
    socket = parts.run_dir / "control.sock"
    short = len(os.fsencode(socket)) <= _LONGEST_SOCKET
    text = parts.config.control or (f"unix:{socket}" if short else "127.0.0.1:0")
    return server, _bind(server, parse_address(text, "--control", any_port=True), "--control")


@contextlib.contextmanager
def _signals(intake: Intake, config: ServerConfig) -> Iterator[asyncio.Future[str]]:
    """The first SIGTERM, SIGHUP or Ctrl-C drains, within a bound; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()

    def drain(number: signal.Signals) -> None:
        if asked.done() and number is signal.SIGHUP:
            return  # a terminal that goes away may say so twice
        if asked.done():
            log.warning("ended", reason=f"a second {number.name}")
            os._exit(128 + number)
        asked.set_result(number.name)
        log.info("draining", signal=number.name)
        intake.drain()
        hurry.append(loop.call_later(config.drain_timeout, _cut_short, number.name))

    hurry: list[asyncio.TimerHandle] = []
    with signals.asking(drain):
        yield asked
    for timer in hurry:
        timer.cancel()


def _cut_short(name: str) -> None:
    """What still runs cannot be interrupted, and nothing of it would be lost: a crash is no harm either."""
    log.warning("parked", reason=f"asked by {name}, and the time to drain is over", hint=_HINT)
    os._exit(0)


async def _linger(intake: Intake, asked: asyncio.Future[str], seconds: float) -> bool:
    """Stay until every client that has a seat has heard how the run ended, or a signal asks to go.

    Return whether they have had their time.
    """
    hearing = asyncio.create_task(intake.farewell())
    await asyncio.wait((hearing, asked), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    heard = hearing.done()
    hearing.cancel()
    return heard or not asked.done()


async def _stop(server: grpc.aio.Server) -> None:
    """End every call. gRPC waits up to 20 s for a peer that does not answer, and would again if the server
    were let go; we do not."""
    stopping = asyncio.create_task(server.stop(_STREAMS_GRACE_S))
    _, waiting = await asyncio.wait([stopping], timeout=2 * _STREAMS_GRACE_S)
    _unfinished.extend((server, *waiting))


def _farewell(parts: Parts, ending: Ended | None, asked: str) -> None:
    """Say how the process ends, and leave no more in the directory than is needed."""
    rundir.remove_small(parts.run_dir / rundir.CONTROL)
    if ending is None:
        log.info("parked", reason=f"asked by {asked}", run_dir=str(parts.run_dir), hint=_HINT)
        return
    log.info("ended", kind=str(ending.kind), reason=ending.reason, run_dir=str(parts.run_dir))
    if ending.kind is not EndingKind.FAILED:
        parts.spool.clear()
