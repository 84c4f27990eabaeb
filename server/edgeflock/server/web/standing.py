"""The dashboard beside a run that it does not depend on: one that is over, or that another process serves."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from edgeflock.common.command import signals
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.common.wire.address import Address
from edgeflock.common.wire.listen import bound, listen_at
from edgeflock.server.config import ServerConfig
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.web.child import FAREWELL_S, answered, command

USUAL = "127.0.0.1:8080"


@dataclass
class Standing:
    """A dashboard that goes on until its block is left."""

    url: str
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Wait until Ctrl-C or another signal asks to go. Raises EdgeflockError if the dashboard ends."""
        signals.on_leaving(signals.interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            code = self.process.wait()
            raise EdgeflockError(f"the dashboard at {self.url} has ended by itself, with exit code {code}")


def claimed(text: str | None, insecure: bool = False) -> tuple[socket.socket, Address]:
    """Return a listening socket where somebody wants it, else at the usual place, else at a free port.

    Raises UsageError or MissingData with a sentence.
    """
    usual = listen_at(text or USUAL, insecure)
    assert usual is not None
    try:
        return bound(usual, "")
    except UsageError:
        if text is not None:
            raise
        return bound(usual.with_port(0), "")


@contextlib.contextmanager
def standing(
    run_dir: Path,
    listener: socket.socket,
    place: Address,
    hosts: Iterable[str] = (),
    *,
    insecure: bool = False,
) -> Iterator[Standing]:
    """Show a run on that socket, which is closed here."""
    with listener:
        process = subprocess.Popen(
            command(run_dir, listener.fileno(), answered(hosts, insecure=insecure)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
            process_group=0,  # Ctrl-C of the terminal reaches this process, which ends that one in time
        )
    try:
        yield Standing(f"http://{place.from_here.target}/", process)
    finally:
        _dismiss(process)


def _dismiss(process: subprocess.Popen[bytes]) -> None:
    """The end of its standard input is the word to go; the end of this process gives it, too."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(FAREWELL_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def stay(config: ServerConfig, run_dir: Path) -> None:
    """Go on showing a run that is over until Ctrl-C. What prevents that is said, and changes nothing."""
    try:
        wanted = listen_at(config.dashboard, config.dashboard_insecure)
        if wanted is None or os.getppid() <= 1:  # nobody's shell has started the process of a container
            return
        listener, place = bound(wanted, rundir.read_small(run_dir / rundir.DASHBOARD))
        with standing(
            run_dir, listener, place, config.dashboard_host, insecure=config.dashboard_insecure
        ) as board:
            click.echo(f"the run is over; the dashboard stays at {board.url} until Ctrl-C", err=True)
            board.wait()
    except KeyboardInterrupt:
        pass
    except EdgeflockError as error:
        click.echo(f"the dashboard does not stay: {error}", err=True)
