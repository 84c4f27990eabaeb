"""Clients on the machines of a cluster: each process of several clients is a task, and looks like a child."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from edgeflock.common.wire.address import Address, parse_address
from edgeflock.lab.becoming import program
from edgeflock.lab.children import Child, Children
from edgeflock.lab.cluster.board import Board, Notice
from edgeflock.lab.cluster.errand import environment, make_own, own_place, standing, taken_along
from edgeflock.lab.cluster.facts import Facts, differences, look
from edgeflock.lab.cluster.joining import Cluster, last_line, teller
from edgeflock.lab.cluster.probe import Data, Question, judge

VALID = timedelta(days=90)  # longer than runs go on
_ATTEMPTS = 5
_INTERVAL_S = 0.5
_READ_EVERY_S = 2.0
_MOST_LOG = 1 << 20


class Reception(Board):
    """The board of a run: it vouches for its clients, too, on the machine that has the authority's key."""

    def __init__(self, authority: str) -> None:
        super().__init__()
        self._authority = authority

    def vouch(self, request: bytes) -> bytes:
        """Return a certificate for whom a request names."""
        from edgeflock.lab.certs.authority import Authority  # a library that a run on one machine needs not

        return Authority.open(Path(self._authority), VALID).vouch(request)


@dataclass(frozen=True)
class Stay:
    """A process of clients, as any node can hold it."""

    number: int
    ids: tuple[str, ...]
    arguments: tuple[str, ...]  # of fl-client, without where its state lies and how it proves itself
    group: str
    state_root: str  # a folder that all nodes see; empty: each has its own
    authority: bytes  # its certificate; empty: plain text
    typed_in: str
    environ: Mapping[str, str]
    home: Facts
    sent: int = 0

    @property
    def place(self) -> Path:
        return own_place(self.group) / "hosts" / str(self.number)

    @property
    def state(self) -> Path:
        return Path(self.state_root) / str(self.number) if self.state_root else self.place / "state"


@dataclass(frozen=True)
class Farewell:
    """How a process of clients has ended."""

    code: int
    log: bytes


def lodge(stay: Stay, wanted: Callable[[], bool], vouch: Callable[[bytes], bytes]) -> Farewell:
    """Hold the clients here until they leave, or a later attempt has taken their place."""
    if differ := differences(stay.home, look()):
        return Farewell(2, f"fl-client: error: node {look().node}: {differ[0]}\n".encode())
    make_own()
    stay.state.parent.mkdir(parents=True, exist_ok=True)
    stay.place.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = stay.place / "log.jsonl"
    with Children() as children, standing(stay.typed_in):
        words = [*program("fl-client"), *stay.arguments, f"--state-dir={stay.state}", *_proof(stay, vouch)]
        child = children.start(f"fl-client {stay.number}", words, log, environment(stay.environ))
        while child.code is None and wanted():
            time.sleep(_INTERVAL_S)
    said = log.read_bytes()[-_MOST_LOG:]
    if child.code == 0:
        shutil.rmtree(stay.place, ignore_errors=True)
    return Farewell(child.code or 0, said)


def _proof(stay: Stay, vouch: Callable[[bytes], bytes]) -> list[str]:
    """Return by what the clients know the server and prove who they are; the key stays on this machine."""
    if not stay.authority:
        return []
    from edgeflock.lab.certs.keys import make_request

    authority, certificate, key = (stay.place / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.write_bytes(stay.authority)
    certificate.write_bytes(vouch(make_request(stay.ids, key)))
    return [f"--tls-ca={authority}", f"--tls-cert={certificate}", f"--tls-key={key}"]


@dataclass
class FarProcess:
    """A process of clients on some node, with the words of a process of this machine."""

    hosts: Hosts
    stay: Stay
    log: Path
    reference: Any = None
    tries: int = 0
    returncode: int | None = None
    pid: int = 0

    def send(self) -> None:
        """Let a node hold the clients, for the first time or again."""
        self.tries += 1
        self.stay = replace(self.stay, sent=time.time_ns())
        self.reference = self.hosts.send(self.stay)

    def poll(self) -> int | None:
        if self.returncode is None:
            if self.hosts.done(self.reference):
                self._take()
            elif self.hosts.stranded(self.stay):
                self._again("its node hangs")
        return self.returncode

    def _take(self) -> None:
        ray = self.hosts.cluster.ray
        try:
            left = ray.get(self.reference)
        except (ray.exceptions.RayTaskError, ray.exceptions.TaskCancelledError) as error:
            self._leave(Farewell(1, f"fl-client: error: {last_line(error)}\n".encode()))
        except ray.exceptions.RayError as error:
            self._again(last_line(error))
        else:
            self._leave(left)

    def _again(self, why: str) -> None:
        if self.tries < _ATTEMPTS:
            self.hosts.lost(self.stay)
            self.send()
            return
        words = f"fl-client: error: lost {_ATTEMPTS} times, the last time: {why}\n"
        self._leave(Farewell(1, words.encode()))

    def _leave(self, left: Farewell) -> None:
        with self.log.open("ab") as file:
            file.write(left.log)
        self.returncode = left.code

    def terminate(self) -> None:
        self.hosts.cancel(self.reference, force=False)

    def kill(self) -> None:
        self.hosts.cancel(self.reference, force=True)

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout or 0.0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("fl-client", timeout)
            time.sleep(_INTERVAL_S)
        return code


@dataclass
class Hosts:
    """All processes of clients of one run."""

    cluster: Cluster
    group: str
    state_root: Path | None  # a folder that all nodes see
    say: Callable[[str], None]
    insecure: bool = False  # every machine of the network is trusted
    authority: Path | None = None  # the folder of the run's own
    board: Any = None
    entries: Mapping[str, Notice] = field(default_factory=dict)
    read_next: float = 0.0

    def room(self) -> int:
        """Return how many processes have a core of their own."""
        return max(1, int(sum(node.resources.get("CPU", 0.0) for node in self.cluster.nodes())))

    def require(self, data: Sequence[Data]) -> None:
        """Refuse a cluster of which some node cannot hold clients. Raises UsageError with a sentence."""
        place = self.state_root or own_place(self.group)
        found = self.cluster.probe(Question(tuple(data), place, journal=False))
        for words in judge(self.cluster.here, found):
            self.say(words)

    def listening(self, folder: Path) -> dict[str, Any]:
        """Return the options by which every node hears a server: with TLS where some are other machines.

        The authority lies in the folder, and its key stays there.
        """
        host = self.cluster.address
        local = all(Address(node.address, 1).local for node in self.cluster.nodes())
        if local or self.insecure:
            return {"listen": f"{host}:0"}
        from edgeflock.lab.certs.authority import Authority

        self.authority = folder
        made = Authority.open(folder, VALID).server([host])
        return {
            "listen": f"{host}:0",
            "tls_cert": made.certificate.absolute(),
            "tls_key": made.key.absolute(),
            "tls_client_ca": (folder / "ca.pem").absolute(),
        }

    def begin(
        self, number: int, ids: tuple[str, ...], name: str, arguments: Sequence[str], log: Path
    ) -> Child:
        """Let a node hold these clients."""
        stay = Stay(
            number=number,
            ids=ids,
            arguments=tuple(arguments),
            group=self.group,
            state_root=str(self.state_root or ""),
            authority=(self.authority / "ca.pem").read_bytes() if self.authority else b"",
            typed_in=str(Path.cwd()),
            environ=taken_along(),
            home=self.cluster.here,
        )
        placed = FarProcess(self, stay, log)
        begin = log.stat().st_size if log.exists() else 0
        log.touch()
        placed.send()
        return Child(name, placed, log, begin)

    def send(self, stay: Stay) -> Any:
        ray = self.cluster.ray
        if self.board is None:
            place = self.cluster.here_only()
            self.board = (
                ray.remote(num_cpus=0)(Reception)
                .options(scheduling_strategy=place)
                .remote(str(self.authority or ""))
            )
        task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_lodge)
        return task.remote(stay, self.board)

    def done(self, reference: Any) -> bool:
        return bool(self.cluster.ray.wait([reference], timeout=0)[0])

    def stranded(self, stay: Stay) -> bool:
        """Whether the node of clients is gone though nobody has said that they are lost."""
        if time.monotonic() >= self.read_next:
            self.read_next = time.monotonic() + _READ_EVERY_S
            self.entries, _ = self.cluster.ray.get(self.board.read.remote())
        return self.cluster.strands(self.entries.get(str(stay.number)), stay.sent)

    def cancel(self, reference: Any, *, force: bool) -> None:
        with contextlib.suppress(self.cluster.ray.exceptions.RayError):
            self.cluster.ray.cancel(reference, force=force)

    def lost(self, stay: Stay) -> None:
        """Say that clients begin again on another node, and with what."""
        whose = stay.ids[0] if len(stay.ids) == 1 else f"{stay.ids[0]}..{stay.ids[-1]}"
        state = "" if self.state_root else "; what they kept is gone with it (--state-root keeps it)"
        self.say(f"the node of {whose} is lost: they begin again on another one{state}")

    def dialled(self, address: str) -> str:
        """Return where nodes dial for an address that the server listens at."""
        heard = parse_address(address, "address")
        return (heard.with_host(self.cluster.address) if heard.everywhere else heard).target


def _lodge(stay: Stay, reception: Any) -> Farewell:
    """Hold clients as a task."""
    import ray

    tell = teller(reception, str(stay.number), stay.sent)
    return lodge(stay, lambda: tell(0), lambda request: bytes(ray.get(reception.vouch.remote(request))))
