"""fl-server for people: its log in sentences, what goes on below them, and the table at the end."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from edgeflock.common.command.crowd import some
from edgeflock.common.command.log import tell_plainly
from edgeflock.common.command.terminal import Terminal
from edgeflock.common.command.typed import typed
from edgeflock.common.scores import ACCURACY
from edgeflock.common.wire.address import parse_address
from edgeflock.server.config import ServerConfig
from edgeflock.server.console.display import Display
from edgeflock.server.console.onward import command
from edgeflock.server.console.sentences import COMINGS, is_known, sentence
from edgeflock.server.console.summary import conclude, title
from edgeflock.server.web import about
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

_LOOK_S, _LEISURELY_S = 0.25, 1.0  # between two looks at the run, on a terminal and else
_CLIENTS_A_SECOND = 1000  # that are looked at: of many the moment is told less often
_TOGETHER_S = 0.5  # clients that come or go in so short a time are told in one sentence
_COMINGS = {name: COMINGS[name] for name in ("client_joined", "client_left")}


class ServerConsole:
    """What a person at fl-server sees. Told of every line of the log, from whatever thread."""

    def __init__(self, terminal: Terminal | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.terminal = terminal or Terminal(sys.stderr)
        self._plainly = tell_plainly(self.terminal)
        self._display = Display(self.terminal, _COMINGS)
        self._clock = clock
        self._lock = threading.RLock()
        self._config: ServerConfig | None = None
        self._notes: dict[str, Any] = {}  # what the first lines will say
        self._coming: list[tuple[str, Mapping[str, Any]]] = []
        self._since = 0.0
        self._here = -1  # clients, as they were told of last
        self._over = False
        self._following: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Show that there is life, long before anything is known."""
        self._display.wait("fl-server starts")

    def serve(self, config: ServerConfig) -> None:
        """The run will be of this configuration."""
        self._config = config
        self._expect(config.watch or ACCURACY.name)
        self._display.wait(f"{config.method}: data and model are made ready")

    def _expect(self, figure: str) -> None:
        config = self._config
        assert config is not None
        self._display.expect(config.rounds, config.eval_every, figure, untrained=bool(config.evaluate_only))

    def close(self) -> None:
        """Take the moment away; of a run that is over, write the table. Once is enough."""
        with self._lock:
            self._flush()
            self._display.close()
        over, self._over = self._over, False
        if over and self._config is not None and self._config.run_dir is not None:
            conclude(self.terminal, self._config.run_dir)

    # ------------------------------------------------------------------------------- the log

    def tell(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        """Take one line of the log."""
        with self._lock:
            if name in _COMINGS:
                self._come(name, fields)
            else:
                self._flush()
                self._take(level, name, fields)

    def _take(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        match name:
            case "run_started" | "dashboard_listening" | "parts":
                self._notes |= fields
            case "listening":
                self._expect(str(self._notes.get("figure", ACCURACY.name)))
                self._head(str(fields["address"]), str(fields["transport"]))
            case "draining":
                asked = "Ctrl-C" if fields["signal"] == "SIGINT" else fields["signal"]
                self._display.tell(f"{asked}: the run is being parked; once more ends it at once", "warning")
            case "parked":
                self._parked(str(fields["reason"]))
            case "run_parked":
                pass  # the next one says more
            case "ended" if "kind" in fields:
                self._over = True
            case "run_is_over":
                self._over = True
                self._display.tell("this run is over, and every client has had its time to hear it")
            case _ if is_known(name):
                self._display.take(name, fields)
            case _:
                self._plainly(level, name, fields)

    def _head(self, address: str, transport: str) -> None:
        config = self._config
        assert config is not None  # it listens because of it
        assert config.run_dir is not None
        say = self._display.say
        say([(title(config, config.run_dir), "bold")], indent=2)
        say([(f"listening at {address}, {transport}", "")], indent=2)
        if "url" in self._notes:
            say([(f"dashboard at {self._notes['url']}", "")], indent=2)
        if "trained" in self._notes:
            say([(_parts(self._notes), "")], indent=2)
        if done := self._notes.get("round"):
            say([(f"goes on after round {done}", "")])
        if not config.central:
            self._display.start = joining(address, config)
            say([(f"each client: {self._display.start}", "")], indent=2)
        if self.terminal.moves:  # elsewhere whoever started it does so again
            say(
                [(f"to go on after a kill: {command('fl-server', '--run-dir', config.run_dir)}", "")],
                indent=2,
            )

    def _parked(self, reason: str) -> None:
        assert self._config is not None
        assert self._config.run_dir is not None
        self._display.close()
        self._display.tell(f"the run is parked, nothing is lost ({reason})")
        self._display.say([(f"to go on: {command('fl-server', '--run-dir', self._config.run_dir)}", "bold")])

    def _come(self, name: str, fields: Mapping[str, Any]) -> None:
        """Keep a client that came or went for the moment: the next ones may be told with it."""
        if self._coming and self._coming[0][0] != name:
            self._flush()
        if not self._coming:
            self._since = self._clock()
        self._coming.append((name, fields))

    def _flush(self) -> None:
        coming, self._coming = self._coming, []
        if len(coming) == 1:
            self._display.tell(sentence(*coming[0]))
        elif coming:
            names = [str(fields.get("client")) for _, fields in coming]
            self._display.tell(f"{some(names)} {_COMINGS[coming[0][0]]}")

    # ------------------------------------------------------------------------------- the moment

    def follow(self, ask: Callable[[], pb.StatusResponse]) -> None:
        """Look at the run again and again, on the running loop, until that ends; if people look at all."""
        if self._config is not None:
            self._following = asyncio.create_task(self._follow(ask))

    async def _follow(self, ask: Callable[[], pb.StatusResponse]) -> None:
        pace = _LOOK_S if self.terminal.moves else _LEISURELY_S
        while True:
            status = ask()
            self.look(status)
            await asyncio.sleep(max(pace, len(status.members) / _CLIENTS_A_SECOND))

    def look(self, status: pb.StatusResponse) -> None:
        """Take what the run is at this moment."""
        here = sum(member.online for member in status.members)
        with self._lock:
            if self._coming and self._clock() - self._since >= _TOGETHER_S:
                self._flush()
            self._display.look(status)
            if status.state == aggregator_pb2.RUN_STATE_GATHERING and here not in (
                self._here,
                status.clients,
            ):
                self._here = here
                self._display.remind()


def _parts(notes: Mapping[str, Any]) -> str:
    """Return how much of the model travels, and what does not."""
    stays = {"frozen": notes["frozen"], "kept by every client": notes["kept_by_clients"]}
    beside = "".join(f", {count:,} {words}" for words, count in stays.items() if count)
    return f"{notes['trained']:,} numbers of the model are trained and sent{beside}"


def joining(address: str, config: ServerConfig) -> str:
    """Return what to type where a client is to take part."""
    program = typed("fl-client") if parse_address(address, "address").local else "fl-client"
    return about.of(config).command(address, socket.gethostname(), program)
