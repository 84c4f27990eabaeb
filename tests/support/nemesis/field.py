"""The federation that is struck: its ends, a link for each process of clients, a disk for each end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support import clock, powerloss
from support.nemesis.ends import RESTART_S, Clock, End, Progress, Tail
from support.nemesis.schedule import EVERY, SERVER, Schedule
from support.powerloss import Disk
from support.processes import Flock, flock
from support.proxy import Proxy

LISTEN = "127.0.0.1:9300"  # of a network of its own
_SIZE = "size=64m"
_LEFT_BEHIND_S = 20.0  # after the server has gone for good; nobody can hear it then


@dataclass
class Field:
    """A federation in motion; `step` looks after its processes."""

    schedule: Schedule
    flock: Flock
    ends: dict[str, End]
    links: dict[str, Proxy]
    progress: Progress = field(default_factory=Progress)
    findings: list[str] = field(default_factory=list)  # what is wrong already
    _tails: dict[Path, Tail] = field(default_factory=dict)
    _alone_since: float = 0.0

    @property
    def server(self) -> End:
        return self.ends[SERVER]

    @property
    def hosts(self) -> list[End]:
        return [end for end in self.ends.values() if end is not self.server]

    @property
    def over(self) -> bool:
        return all(end.over for end in self.ends.values())

    def passed(self, target: str, direction: str) -> int:
        """Return the bytes that have passed through a link, or through all of them."""
        links = [self.links[target]] if target in self.links else list(self.links.values())
        return sum(link.passed[direction] for link in links)

    def step(self) -> None:
        """Read what was said, and start again what shall live."""
        self.read()
        for end in self.ends.values():
            if not end.over:
                self._supervise(end)
        self._leave_nobody_behind()

    def read(self) -> None:
        """Take in what the logs say since."""
        lives = {life.log: end for end in self.ends.values() for life in end.lives}
        for program in self.flock.programs:
            for entry in self._tails.setdefault(program.log, Tail(program.log)).lines():
                end = lives.get(program.log)
                if end is self.server:
                    self.progress.note(entry)
                elif program.name.startswith("fl-client"):
                    self.progress.note_loss(entry)
                    if end:  # no clone of it
                        self.progress.note_client(entry)

    def _supervise(self, end: End) -> None:
        if end.program:
            return
        if end.lives and end.lives[-1].process.exitcode is not None and not end.holds and not end.start_at:
            self.read()
            self._ended(end, end.lives[-1].process.exitcode)
        if not end.over and not end.holds and time.monotonic() >= end.start_at:
            end.note_calls()
            end.start_at = 0.0
            end.start(self.flock)

    def _ended(self, end: End, code: int) -> None:
        """Decide as a service does whether it is started again."""
        known = self.progress.said in ("ended", "run_is_over") if end is self.server else self._knows(end)
        if code == 0 and (known or not end.asked):
            end.over = True
            if not known:
                self.findings.append(f"{end.name} ended with 0, and its run was not over")
        elif known and end is not self.server:  # it has nobody to ask any more
            end.over = True
        elif code == 1:
            end.ends_with_1 += 1
            end.start_at = time.monotonic() + RESTART_S
        elif code not in (0, -signal.SIGKILL):
            end.over = True
            self.findings.append(f"{end.name} ended with {code}: {end.lives[-1].sentence()}")

    def _knows(self, end: End) -> bool:
        """Whether all clients of that process have heard that the run is over."""
        return set(end.name.split(",")) <= self.progress.heard

    def _leave_nobody_behind(self) -> None:
        if not self.server.over:
            return
        self._alone_since = self._alone_since or time.monotonic()
        for end in self.hosts:
            if self.schedule.stays and self._knows(end) and not end.over and not end.asked:
                end.asked = True
                end.signal(signal.SIGTERM)
            late = time.monotonic() > self._alone_since + _LEFT_BEHIND_S
            if late and self._knows(end) and end.name in self.schedule.struck("clone"):
                end.kill()  # the other device of its name has said goodbye for it
                end.over = True
            elif late and not end.over and not end.holds:
                words = "has not ended" if self._knows(end) else "was left behind: it never heard of the end"
                self.findings.append(f"{end.name} {words}")
                end.kill()
                end.over = True


@contextlib.contextmanager
def laid_out(folder: Path, schedule: Schedule) -> Iterator[Field]:
    """Give the federation of a schedule, nothing of it started yet."""
    names = (SERVER, *schedule.hosts)
    places = {name: folder / "run" if name == SERVER else folder / "clients" / name for name in names}
    with contextlib.ExitStack() as stack:
        for place in places.values():
            place.mkdir(parents=True)
            stack.enter_context(_mounted(place))
        made = stack.enter_context(flock(folder))
        links = {host: stack.enter_context(Proxy(lambda: LISTEN)) for host in schedule.hosts}
        flags = (*EVERY, *schedule.setting.flags, *schedule.server_flags)
        words: dict[str, tuple[str, ...]] = {
            SERVER: (f"--run-dir={places[SERVER]}", f"--listen={LISTEN}", *flags)
        }
        for host, link in links.items():
            where = (f"--server={link.address}", f"--state-dir={places[host]}")
            words[host] = (f"--ids={host}", *where, *schedule.client_flags)
        ends = {
            name: End(name, "fl-server" if name == SERVER else "fl-client", words[name], places[name])
            for name in names
        }
        _prepare(folder, schedule, ends)
        yield Field(schedule, made, ends, links)


def _prepare(folder: Path, schedule: Schedule, ends: dict[str, End]) -> None:
    """Give clocks and recorded disks to those whose schedule wants them."""
    for number, name in enumerate(sorted(schedule.struck("jump"))):
        file = folder / f"clock-{number}"
        ends[name].clock = Clock(file, clock.faked(file))
    for name in schedule.struck("power"):
        if not ends[name].clock:
            ends[name].disk = Disk(ends[name].folder, powerloss.read(ends[name].folder))


@contextlib.contextmanager
def _mounted(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", _SIZE, "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
