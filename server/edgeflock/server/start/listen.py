"""Where a run is reached: the ports of the clients' service and of the operator's, and what protects them."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import dataclass

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import Address, parse_address
from edgeflock.common.wire.listen import listening
from edgeflock.common.wire.transport import MAX_STATUS, server_options
from edgeflock.server.config import gate_address, listen_address, takes_gates
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.gates.hall import GatesService, add_gates
from edgeflock.server.service import certificates
from edgeflock.server.service.aggregator import AggregatorService
from edgeflock.server.service.binding import AGGREGATOR, add_aggregator, add_control
from edgeflock.server.service.certificates import Certificates
from edgeflock.server.service.gate_book import GateBook
from edgeflock.server.start.gatehouse import Gatehouse, key_of
from edgeflock.server.start.motion import RunInMotion
from edgeflock.server.start.resolve import here_only
from edgeflock.server.start.room import when_there_is_room

log = structlog.get_logger()

_LONGEST_SOCKET = 100  # bytes of a Unix socket's path that every system takes
_STREAMS_GRACE_S = 1.0
_unfinished: list[object] = []  # ends with the process


def check_free(address: Address) -> None:
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


@dataclass
class Doors:
    """Both services of a run. What cannot be bound is said before anything is decided."""

    run: RunInMotion
    clients: grpc.aio.Server
    address: Address  # of the clients' service
    control: grpc.aio.Server
    control_address: Address
    trusted: Certificates | None  # None: plain text
    hall: GatesService | None  # who answers gates, if there are to be any
    gates: grpc.aio.Server | None
    house: Gatehouse | None  # of this server's own gates
    _watching: asyncio.Task[None] | None = None  # the certificate's time

    @classmethod
    async def bound(cls, run: RunInMotion) -> Doors:
        """Bind the ports; nobody is answered before `open`."""
        trusted = certificates.read(run.parts.built.config)
        book = GateBook()
        (clients, service), control = await _clients(run, trusted, book), _control(run)
        credentials = trusted.credentials() if trusted else None
        address = _bind(clients, _wanted(run), "--listen", credentials)
        there = _bind(control, _wanted_control(run), "--control")
        hall, gates, house = None, None, None
        if takes_gates(run.parts.built.config):
            hall, gates, attended = _gates(run, service, book, trusted.alone() if trusted else None)
            house = Gatehouse(run.parts.built.config, run.parts.run_dir, attended, address, book)
        return cls(run, clients, address, control, there, trusted, hall, gates, house)

    async def open(self) -> None:
        """Answer from now on: the machine knows the seats when the first client comes."""
        if self.gates is not None and self.house is not None:
            await self.gates.start()
            await self.house.open()
        await self.clients.start()
        await self.control.start()
        config = self.run.parts.built.config
        run_dir = self.run.parts.run_dir
        await asyncio.to_thread(when_there_is_room, run_dir, self._write_addresses)
        transport = self.trusted.words if self.trusted else "plain text"
        log.info("listening", address=self.address.target, transport=transport)
        if words := here_only(config):
            log.info("listening_here_only", reason=words)
        if self.trusted is not None:
            self._watching = asyncio.create_task(certificates.watch(self.trusted.pair, self._warn))

    def _write_addresses(self) -> None:
        run_dir = self.run.parts.run_dir
        rundir.write_small(run_dir / rundir.CONTROL, f"{self.control_address.target}\n")
        rundir.write_small(run_dir / rundir.ADDRESS, f"{self.address.target}\n")

    def _warn(self, reason: str) -> None:
        """Say in log and journal when the certificate's time comes."""
        log.warning("certificate", reason=reason)
        self.run.intake.note("certificate", reason=reason)

    async def close_to_clients(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await _stop(self.clients)
        if self.hall is not None and self.gates is not None and self.house is not None:
            await self.hall.close()
            await _stop(self.gates)
            await self.house.close()

    async def close(self) -> None:
        await _stop(self.control)


# --------------------------------------------------------------------------------------- for clients


async def _clients(
    run: RunInMotion, trusted: Certificates | None, book: GateBook
) -> tuple[grpc.aio.Server, AggregatorService]:
    config = run.parts.built.config
    server = grpc.aio.server(options=server_options())
    service = add_aggregator(
        server,
        run.intake,
        run.sessions,
        run.parts.run,
        book,
        credit_bytes=config.credit_mib * 1024 * 1024,
        certified=trusted is not None and trusted.clients is not None,
        same_code=config.same_code,
    )
    healthy = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue] - made at import
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    if config.reflection:
        _add_reflection(server)
    await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
    await healthy.set(AGGREGATOR, health_pb2.HealthCheckResponse.SERVING)
    return server, service


def _add_reflection(server: grpc.aio.Server) -> None:
    from grpc_reflection.v1alpha import reflection

    reflection.enable_server_reflection((AGGREGATOR, health.SERVICE_NAME, reflection.SERVICE_NAME), server)


def _wanted(run: RunInMotion) -> Address:
    """On resume a free port is the one that the clients already know."""
    address = listen_address(run.parts.built.config)
    before = rundir.read_small(run.parts.run_dir / rundir.ADDRESS)
    if address.path or address.port or not before:
        return address
    return address.with_port(parse_address(before, rundir.ADDRESS).port)


# --------------------------------------------------------------------------------------- for gates


def _gates(
    run: RunInMotion, service: AggregatorService, book: GateBook, credentials: grpc.ServerCredentials | None
) -> tuple[GatesService, grpc.aio.Server, Address]:
    """Return what answers gates, and where those of this machine attend."""
    config, run_dir = run.parts.built.config, run.parts.run_dir
    key, path = key_of(config, run_dir)
    server = grpc.aio.server(options=server_options())
    run_id, folder = run.parts.resumed.meta["run_id"], run_dir / rundir.GATES
    hall = GatesService(service, run.intake, book, key, run_id, folder)
    add_gates(server, hall)
    socket = run_dir / rundir.GATES_SOCKET
    short = len(os.fsencode(socket)) <= _LONGEST_SOCKET
    here = Address(path=str(socket)) if short else parse_address("127.0.0.1:0", "--gates", any_port=True)
    here = _bind(server, here, "--gates")
    if (wanted := gate_address(config)) is not None:
        there = _bind(server, wanted, "--gate-listen", credentials)
        log.info("gates_expected", address=there.target, key=str(path))
    return hall, server, here


# --------------------------------------------------------------------------------------- for operators


def _control(run: RunInMotion) -> grpc.aio.Server:
    server, parts = grpc.aio.server(options=server_options(MAX_STATUS)), run.parts
    run_id = parts.resumed.meta["run_id"]
    add_control(server, run.intake, run.sessions, parts.journal, run_id, parts.run_dir)
    return server


def _wanted_control(run: RunInMotion) -> Address:
    socket = run.parts.run_dir / rundir.CONTROL_SOCKET
    short = len(os.fsencode(socket)) <= _LONGEST_SOCKET
    text = run.parts.built.config.control or (f"unix:{socket}" if short else "127.0.0.1:0")
    return parse_address(text, "--control", any_port=True)


# --------------------------------------------------------------------------------------- both


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


async def _stop(server: grpc.aio.Server) -> None:
    """End every call. gRPC waits up to 20 s for a peer that does not answer, and would again if the server
    were let go; we do not."""
    stopping = asyncio.create_task(server.stop(_STREAMS_GRACE_S))
    _, waiting = await asyncio.wait([stopping], timeout=2 * _STREAMS_GRACE_S)
    _unfinished.extend((server, *waiting))
