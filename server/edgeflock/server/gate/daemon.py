"""The gate's life: bound, attending, serving, until it is told to go, or its parent is gone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from socket import gethostname

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edgeflock.common import descriptors
from edgeflock.common.allocator import keep_pages
from edgeflock.common.command import signals
from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import Address, parse_address, require_trust
from edgeflock.common.wire.transport import server_options
from edgeflock.server.gate.calls import GateService, handlers
from edgeflock.server.gate.config import GateConfig
from edgeflock.server.gate.hand import Hand
from edgeflock.server.gate.stock import GateStock
from edgeflock.server.gate.upstream import Upstream
from edgeflock.server.gate.way import Way
from edgeflock.server.service import certificates
from edgeflock.server.service.binding import AGGREGATOR, add_calls
from edgeflock.server.service.certificates import Certificates
from edgeflock.server.service.flow import CreditPool
from edgeflock.v1 import gate_pb2 as gpb

log = structlog.get_logger()

_GRACE_S = 1.0
_PR_SET_PDEATHSIG = 1
_WAY_TO_TLS = "--tls-cert and --tls-key"


def run(config: GateConfig, *, attached: bool = False) -> int:
    """Serve until a signal comes, or the parent is gone if it is `attached` to one."""
    keep_pages()
    descriptors.raise_limit()
    trusted = certificates.read(config)
    safe = config.insecure or trusted is not None
    listen = parse_address(config.listen, "--listen", any_port=True, everywhere=safe)
    require_trust(listen, "--listen", safe, _WAY_TO_TLS)
    way = Way.of(config)
    if config.advertise is not None:
        parse_address(config.advertise, "--advertise")
    if attached:
        _die_with_parent()
    with contextlib.ExitStack() as stack:
        if config.spool_dir is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-gate-")))
        else:
            root = config.spool_dir.absolute()
            _make(root)
        asyncio.run(_serve(config, way, listen, trusted, root, attached=attached))
    return 0


def _make(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--spool-dir {str(root)!r} cannot be made: {error.strerror}") from None


async def _serve(
    config: GateConfig, way: Way, listen: Address, trusted: Certificates | None, root: Path, *, attached: bool
) -> None:
    server = grpc.aio.server(options=server_options())
    address = _bind(server, listen, trusted)
    shown = _shown(config, address, attached=attached)
    hello = gpb.GateHello(
        software=version("edgeflock"),
        name=config.name or shown,
        address=shown,
        key=way.key,
        spool=str(root) if attached else "",
    )
    stock = GateStock(root)
    upstream = Upstream(way, hello, stock.begin)
    hand = Hand(upstream, stock, way.key, hello.name, local=attached)
    pool = CreditPool(config.credit_mib * 1024 * 1024)
    certified = trusted is not None and trusted.clients is not None
    add_calls(server, handlers(GateService(upstream, stock, hand, pool, certified=certified)))
    healthy = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue] - made at import
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    await server.start()
    log.info("gate_listening", address=address.target, shown=shown, name=hello.name)
    attending, telling = asyncio.create_task(upstream.run()), asyncio.create_task(_health(healthy, upstream))
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()

    def ask(number: signal.Signals) -> None:
        if not asked.done():
            asked.set_result(number.name)

    with signals.asking(ask):
        if attached:
            loop.add_reader(0, _input_ended, asked)
        await asyncio.wait((attending, asked), return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    stopping = asyncio.create_task(server.stop(_GRACE_S))
    await asyncio.wait([stopping], timeout=2 * _GRACE_S)
    if attending.done():
        attending.result()
    attending.cancel()
    await asyncio.wait([attending])
    log.info("ended", reason=f"asked by {asked.result()}")


async def _health(healthy: health.aio.HealthServicer, upstream: Upstream) -> None:  # pyright: ignore[reportAttributeAccessIssue]
    """Say who asks whether clients can be served now."""
    while True:
        state = (
            health_pb2.HealthCheckResponse.SERVING
            if upstream.up.is_set()
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        await healthy.set("", state)
        await healthy.set(AGGREGATOR, state)
        await asyncio.sleep(1.0)


def _bind(server: grpc.aio.Server, listen: Address, trusted: Certificates | None) -> Address:
    try:
        if trusted is None:
            port = server.add_insecure_port(listen.target)
        else:
            port = server.add_secure_port(listen.target, trusted.credentials())
    except RuntimeError:
        port = 0
    if port == 0:
        raise UsageError(f"--listen {listen.target} cannot be bound: it is in use or not of this machine")
    return listen if listen.path else listen.with_port(port)


def _shown(config: GateConfig, address: Address, *, attached: bool) -> str:
    """Return where clients are told to reach this gate."""
    if config.advertise is not None:
        return parse_address(config.advertise, "--advertise").target
    if attached:
        return f":{address.port}"  # at the host that they know
    return (address.with_host(gethostname()) if address.everywhere else address).target


def _input_ended(asked: asyncio.Future[str]) -> None:
    """The parent has closed its end of the pipe, willingly or not."""
    if not os.read(0, 1) and not asked.done():
        asked.set_result("fl-server")
        asyncio.get_running_loop().remove_reader(0)


def _die_with_parent() -> None:
    """Stopped or not: what a gate that nobody looks after still writes is in nobody's way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
