"""A server and its clients as real processes on this machine, watched to the end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeflock.common.command import flags, signals
from edgeflock.common.command.terminal import Terminal
from edgeflock.common.command.units import counted
from edgeflock.common.errors import BadValue, EdgeflockError, UsageError
from edgeflock.common.plugins.loading import is_reference, named
from edgeflock.common.wire.address import parse_address
from edgeflock.common.wire.listen import OFF
from edgeflock.lab.children import Child, Children, environment_without
from edgeflock.lab.nursery import Nursery
from edgeflock.lab.run.config import CLIENTS, LabConfig, recall, remember, usual
from edgeflock.lab.run.glance import Glance
from edgeflock.server.config import ServerConfig, default_run_dir, references
from edgeflock.server.console import onward
from edgeflock.server.console.display import Display
from edgeflock.server.console.summary import conclude, is_over, title
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Feed
from edgeflock.server.web.standing import stay

if TYPE_CHECKING:
    from edgeflock.lab.cluster.hosts import Hosts
    from edgeflock.lab.run.far import Far

_INTERVAL_S = 0.1
TLS = "tls"  # in the run directory: the authority of a run whose clients are on other machines
UNTOLD = ("client_joined", "client_left")  # they are processes of our own
_LAST_WORDS_S = 3.0  # of a server whose clients have heard that the run failed


class ChildFailed(EdgeflockError):
    """A started process ended as it should not."""

    def __init__(self, child: Child) -> None:
        refused = child.code == 2  # what was asked for is wrong: the child's sentence is enough
        super().__init__((child.refusal() if refused else "") or child.ending())
        self.exit_code = 2 if refused else 1
        said = child.refusal() if child.name.startswith("fl-client") else ""
        self.refused = f"{child.name}: {said}" if said and not refused else said  # by a client, and why


def run(
    given: Mapping[str, Any],
    lab: Mapping[str, Any],
    nursery: Nursery | None = None,
    far: Far | None = None,
) -> int:
    """Hold the run that was asked for, in view of people; return the exit code.

    Its clients are on other machines if such are given.
    """
    run_dir = given.get("run_dir") or default_run_dir(given.get("method", "fedavg"))
    rundir.require_place(run_dir)
    experiment = LabConfig(**lab)
    _check_own_data(given, experiment)
    _check_transport(given)
    signals.on_leaving(signals.interrupt)
    ours = [path for path in (run_dir, *run_dir.parents) if not path.exists()]
    terminal = Terminal(sys.stdout)
    try:
        with Children(nursery=nursery) as children, closing(Display(terminal, UNTOLD)) as shown:
            hosts = far.hosts(run_dir, given, experiment, shown) if far else None
            _to_the_end(Experiment(run_dir, given, experiment, children, shown, hosts))
    except KeyboardInterrupt:
        click.echo(f"interrupted: {_again(run_dir)} goes on with it", err=True)
        raise
    except ChildFailed as failed:
        if is_over(run_dir):
            conclude(terminal, run_dir)
        elif not _has_rounds(run_dir):  # again it would fail likewise
            if failed.refused and run_dir in ours:
                with rundir.locked(run_dir):  # nobody else has it
                    shutil.rmtree(run_dir)
                _remove(ours)
                raise UsageError(failed.refused) from None
        elif failed.exit_code == 1:
            click.echo(f"to go on: {_again(run_dir)}", err=True)
        raise
    finally:
        forget_if_empty(run_dir, ours)
    conclude(terminal, run_dir)
    if terminal.moves:
        stay(from_toml(run_dir / "run.toml"), run_dir)
    return 0


def _has_rounds(run_dir: Path) -> bool:
    with closing(Feed(run_dir)) as feed:
        return any(event.name == "round_committed" for event in feed.read())


def _again(run_dir: Path) -> str:
    return onward.command("fl-lab", "run", "--run-dir", run_dir)


def _check_own_data(given: Mapping[str, Any], lab: LabConfig) -> None:
    """Refuse data of clients for a method that has none."""
    if lab.client_data is None or "method" not in given:
        return
    from edgeflock.methods.kit.registry import (
        load,  # brings torch, which most runs of the lab need not wait for
    )

    if load(named(given["method"])).central:
        raise UsageError(
            f"{given['method']} trains on the server, where no client is contacted: "
            "--client-data cannot reach it, give --dataset"
        )


def _check_transport(given: Mapping[str, Any]) -> None:
    """Refuse TLS: server and clients are processes of this machine."""
    if files := [name for name in given if name.startswith("tls_")]:
        flag = f"--{files[0].replace('_', '-')}"
        raise UsageError(f"{flag} is for fl-server: the clients of fl-lab run are on this machine")


def _to_the_end(experiment: Experiment) -> None:
    with closing(Feed(experiment.run_dir)) as feed:
        feed.read()  # what earlier lives of the run have shown
        server = experiment.start_server()
        experiment.start_clients(server)
        experiment.children.close_nursery()
        watch(server, feed, experiment)
        end(experiment.children)


def forget_if_empty(run_dir: Path, ours: Sequence[Path]) -> None:
    """Remove what a refused server has left without a run in it, the directories that we made too."""
    log, tls = run_dir / "logs" / "server.jsonl", run_dir / TLS
    if [path for path in run_dir.rglob("*") if not (path.is_dir() or path.parent == tls)] == [log]:
        shutil.rmtree(tls, ignore_errors=True)
        log.unlink()
        log.parent.rmdir()
        _remove(ours)


def _remove(folders: Sequence[Path]) -> None:
    with suppress(OSError):  # there are other folders in it
        for path in folders:
            if path.exists():
                path.rmdir()


@dataclass
class Experiment:
    """One run on this machine: what was asked for, and how its processes are started."""

    run_dir: Path
    given: Mapping[str, Any]
    lab: LabConfig
    children: Children
    shown: Display
    hosts: Hosts | None = None  # other machines, where the clients are

    def config(self) -> ServerConfig:
        """Return the run's configuration, once the server has written it."""
        return from_toml(self.run_dir / "run.toml")

    def start_server(self) -> Child:
        """Start the server and wait until it listens; raises ChildFailed if it never does."""
        (self.run_dir / "logs").mkdir(parents=True, exist_ok=True)
        listen = self.hosts.listening(self.run_dir / TLS) if self.hosts else {"listen": "127.0.0.1:0"}
        asked = {**listen, **self.given, "run_dir": self.run_dir, "log_format": "json"}
        before = _stamp(self.run_dir / "address")
        self.shown.wait("fl-server starts")
        server = self.children.begin(
            "fl-server",
            "fl-server",
            flags.to_arguments(ServerConfig, asked),
            self.run_dir / "logs" / "server.jsonl",
            environment_without("FL_SERVER_"),
        )
        while _stamp(self.run_dir / "address") in (None, before) or self._is_another_s(server):
            if server.code is not None:
                return server  # finished at once, or failed: the watch says which
            self.shown.wait("fl-server starts")
            time.sleep(_INTERVAL_S / 5)
        return server

    def _is_another_s(self, server: Child) -> bool:
        """Whether another server has the directory: ours will be refused, and the address is no news."""
        return rundir.holder(self.run_dir) not in (None, server.process.pid)

    def start_clients(self, server: Child) -> None:
        if server.code is not None:
            return
        config = self.config()
        self.children.patience_s = max(self.children.patience_s, config.drain_timeout + 5)
        if config.tls_cert is not None and not config.central and not self.hosts:
            raise UsageError(f"{self.run_dir} talks TLS with devices: fl-server --run-dir goes on with it")
        lab = self._as_before(config.clients)
        remember(self.run_dir, lab)
        if config.central:
            return
        for number in range(lab.processes or usual(config.clients)):
            self.start_client(number)

    def start_client(self, number: int) -> Child:
        """Start that client process, for the first time or again on the state that it has left."""
        config, lab = self.config(), recall(self.run_dir) or LabConfig()
        ids = split(config.clients, lab.processes or usual(config.clients))[number]
        address = (self.run_dir / "address").read_text("utf-8").strip()
        name, log = f"fl-client {_span(ids)}", self.run_dir / "logs" / f"client-{number}.jsonl"
        arguments = [f"--ids={','.join(ids)}", "--log-format=json", *self._shared(config, lab)]
        if self.hosts is not None:
            there = (f"--server={self.hosts.dialled(address)}", *arguments)
            return self.children.take(self.hosts.begin(number, ids, name, there, log))
        here = (f"--server={dialled(address)}", f"--state-dir={self.run_dir / CLIENTS / str(number)}")
        environ = environment_without("FL_SERVER_")
        return self.children.begin(name, "fl-client", [*here, *arguments], log, environ)

    def _shared(self, config: ServerConfig, lab: LabConfig) -> list[str]:
        """Return the flags that every client gets of the run's."""
        root = self.given.get("data_root") or config.data_root
        chosen = {
            "--data": lab.client_data,
            "--hold-out": lab.hold_out,
            "--label": ",".join(config.label) or None,
            "--columns": ",".join(config.columns) or None,
            "--size": config.size,
            "--data-root": root,
            "--model": config.model if ":" in config.model else None,
            "--allow-code": ",".join(references(config)) or None,
        }
        said = [f"{flag}={value}" for flag, value in chosen.items() if value is not None]
        return [*said, "--insecure"] if config.insecure else said

    def _as_before(self, clients: int) -> LabConfig:
        """Return how the clients are started: a resumed run keeps their processes, for their state."""
        before, asked = recall(self.run_dir) or LabConfig(), self.lab.processes
        if asked is not None and asked > clients:
            raise BadValue("--processes", asked, f"at most --clients, which is {clients}")
        if before.processes and asked not in (None, before.processes):
            words = f"{before.processes}, as before: clients' state is kept by process"
            raise BadValue("--processes", asked, words)
        data = self.lab.client_data
        if data and not is_reference(data):
            data = str(Path(data).absolute())
        share = before.hold_out if self.lab.hold_out is None else self.lab.hold_out
        room = min(clients, self.hosts.room()) if self.hosts else usual(clients)
        return LabConfig(
            processes=before.processes or asked or room,
            client_data=data or before.client_data,
            hold_out=share,
        )


def split(clients: int, processes: int) -> list[tuple[str, ...]]:
    """Return the ids that each process hosts: c0, c1, ... in as equal parts as can be."""
    ids = tuple(f"c{number}" for number in range(clients))
    cuts = [clients * number // processes for number in range(processes + 1)]
    return [ids[low:high] for low, high in pairwise(cuts)]


def dialled(address: str) -> str:
    """Return where to dial for an address that was listened at."""
    return parse_address(address, "address").from_here.target


def watch(server: Child, feed: Feed, experiment: Experiment) -> None:
    """Show every round until the server has ended; raises ChildFailed if a process fails before."""
    if server.code is not None:
        check(server)
        return
    config, shown = experiment.config(), experiment.shown
    figure = feed.measures()[0].name
    shown.expect(config.rounds, config.eval_every, figure, untrained=bool(config.evaluate_only))
    shown.say([(title(config, experiment.run_dir), "bold")], indent=2)
    if (board := _dashboard(experiment.run_dir, config)) is not None:
        shown.say([(f"dashboard at {board}", "")], indent=2)
    if not config.central:
        shown.wait(f"{counted(config.clients, 'client')} start")
    with Glance(experiment.run_dir) as glance:
        while server.code is None:
            if _show(feed, shown):
                glance.rest()
            _look(glance, shown)
            check_all(server, experiment.children)
            experiment.children.wait([server], _INTERVAL_S)
    _show(feed, shown)
    check(server)


def _dashboard(run_dir: Path, config: ServerConfig) -> str | None:
    """Return where a browser finds the server's dashboard, if it has one."""
    if config.dashboard in (None, OFF):
        return None
    return f"http://{dialled((run_dir / 'dashboard').read_text('utf-8').strip())}/"


def _show(feed: Feed, shown: Display) -> bool:
    """Show what is new; return whether the run has ended with it."""
    over = False
    for event in feed.read():
        shown.take(event.name, event.fields)
        over |= event.name == "run_ended"
    return over


def _look(glance: Glance, shown: Display) -> None:
    """Show what goes on now."""
    status = glance.look()
    if status is not None:
        shown.look(status)
    else:
        shown.draw()


def check_all(server: Child, children: Children) -> None:
    """Raise ChildFailed if a process has failed; if that ended its clients too, the server says why."""
    for child in children.all:
        if child.code not in (None, 0):
            children.wait([server], _LAST_WORDS_S)
            check(server)
            check(child)


def check(child: Child) -> None:
    if child.code not in (None, 0):
        raise ChildFailed(child)


def end(children: Children) -> None:
    """Let the clients hear of the end; raises ChildFailed if one does not end well."""
    if not children.wait(children.all, children.patience_s):
        late = ", ".join(child.name for child in children.living())
        click.echo(f"still running after the end of the run, ended now: {late}", err=True)
        return
    for child in children.all:
        check(child)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_ino


def _span(ids: tuple[str, ...]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]}..{ids[-1]}"
