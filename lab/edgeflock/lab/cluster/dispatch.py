"""Errands sent over a cluster: so many at a time, again when their node is lost, called back at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from edgeflock.lab.cluster.board import Board, Notice
from edgeflock.lab.cluster.errand import Errand, Homecoming, carry, clear
from edgeflock.lab.cluster.joining import Cluster, last_line, teller

_ATTEMPTS = 5
_INTERVAL_S = 0.5
_FORGET_S = 5.0


@dataclass(frozen=True)
class Need:
    """What a node must have free for an errand."""

    cpus: float
    gpus: float = 0.0
    memory: int = 0  # bytes

    def options(self) -> dict[str, Any]:
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory or None}


@dataclass
class _Sent:
    errand: Errand
    need: Need
    tries: int = 1


@dataclass
class Dispatch:
    """The errands of one asker."""

    cluster: Cluster
    say: Callable[[str], None]  # sentences for people
    waiting: deque[_Sent] = field(default_factory=deque)
    sent: dict[Any, _Sent] = field(default_factory=dict)  # by the reference of what comes of it
    digests: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # of models that came first, and from where
    forgetting: list[Any] = field(default_factory=list)
    doubted: set[tuple[str, str]] = field(default_factory=set)

    def run(
        self,
        errands: Sequence[tuple[Errand, Need]],
        at_once: int,
        watch: Callable[[Mapping[str, Notice]], None],
    ) -> Generator[Homecoming]:
        """Send errands and yield what came of each; `watch` is told in between how far they are.

        Leaving the iteration early calls back those that are on their way.
        """
        self.waiting.extend(_Sent(errand, need) for errand, need in errands)
        ray = self.cluster.ray
        board = ray.remote(num_cpus=0)(Board).options(scheduling_strategy=self.cluster.here_only()).remote()
        try:
            while self.waiting or self.sent:
                while self.waiting and len(self.sent) < at_once:
                    self._send(self.waiting.popleft(), board)
                done, _ = ray.wait(list(self.sent), timeout=_INTERVAL_S)
                entries, models = ray.get(board.read.remote())
                self._compare(models)
                for reference in done:
                    if (home := self._take(reference)) is not None:
                        yield home
                for reference in self._stranded(entries):
                    if (home := self._again(self.sent.pop(reference), "its node hangs")) is not None:
                        yield home
                watch({sent.errand.key: entries[sent.errand.key] for sent in self._begun(entries)})
        finally:
            self._call_back()
            ray.wait(
                self.forgetting, num_returns=len(self.forgetting), timeout=_FORGET_S
            ) if self.forgetting else None
            ray.kill(board)

    def _begun(self, entries: Mapping[str, Notice]) -> list[_Sent]:
        return [
            sent
            for sent in self.sent.values()
            if (entry := entries.get(sent.errand.key)) and entry.sent == sent.errand.sent
        ]

    def _send(self, one: _Sent, board: Any) -> None:
        one.errand = replace(one.errand, sent=time.time_ns())
        task = self.cluster.ray.remote(max_retries=0)(_carry).options(
            name=one.errand.name, **one.need.options()
        )
        self.sent[task.remote(one.errand, board)] = one

    def _take(self, reference: Any) -> Homecoming | None:
        """Return what came of an errand; None if it was lost on its way and is sent again."""
        one, ray = self.sent.pop(reference), self.cluster.ray
        try:
            home = ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # it was done there, and failed
            return self._failed(one, last_line(error))
        except ray.exceptions.RayError as error:
            return self._again(one, last_line(error))
        assert isinstance(home, Homecoming)
        if home.digest:
            self.digests.setdefault(home.key, (home.digest, home.node))
        return home

    def _stranded(self, entries: Mapping[str, Notice]) -> list[Any]:
        strands = self.cluster.strands
        return [
            reference
            for reference, one in self.sent.items()
            if strands(entries.get(one.errand.key), one.errand.sent)
        ]

    def _again(self, one: _Sent, why: str) -> Homecoming | None:
        """Send an errand again that is lost; return that it has failed if it was lost too often."""
        if one.tries == _ATTEMPTS:
            return self._failed(one, f"lost {_ATTEMPTS} times, the last time: {why}")
        self.say(f"{one.errand.name} is lost with its node and begins again on another one")
        one.tries += 1
        self.waiting.appendleft(one)
        return None

    def _failed(self, one: _Sent, failure: str) -> Homecoming:
        return Homecoming(one.errand.key, one.errand.group, one.errand.sent, "", "", 0.0, failure)

    def _compare(self, models: Mapping[str, Mapping[int, tuple[str, str]]]) -> None:
        """Say it aloud where two attempts of one errand have come to different models."""
        for key, attempts in models.items():
            first = self.digests.get(key) or next(iter(attempts.values()))
            for digest, node in attempts.values():
                if digest and first[0] and digest != first[0] and (key, digest) not in self.doubted:
                    self.doubted.add((key, digest))
                    words = (
                        f"has another SHA-256 ({digest[:12]}) than the one of {first[1]} ({first[0][:12]})"
                    )
                    self.say(f"{key}: the model of {node} {words}; the first one counts")

    def forget(self, home: Homecoming) -> None:
        """Let the node remove its own copy of what is at home now."""
        place = self.cluster.on(home.node_id)
        task = self.cluster.ray.remote(num_cpus=0, max_retries=0)(_forget).options(scheduling_strategy=place)
        self.forgetting.append(task.remote(home.group, home.key))

    def _call_back(self) -> None:
        """Interrupt what is on its way, and end what does not leave in time."""
        ray, left = self.cluster.ray, list(self.sent)
        for reference in left:
            with suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=False)
        patience = max((sent.errand.patience_s for sent in self.sent.values()), default=0.0)
        _, late = ray.wait(left, num_returns=len(left), timeout=patience) if left else ([], [])
        for reference in late:
            with suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=True)
        self.sent.clear()


def _carry(errand: Errand, board: Any) -> Homecoming:
    """Carry out an errand as a task: what it says goes to the board, and nobody waits for the board."""
    import ray

    node = ray.get_runtime_context().get_node_id()

    def made(digest: str) -> None:
        board.made.remote(errand.key, errand.sent, digest, node[:8])

    return replace(carry(errand, teller(board, errand.key, errand.sent), made), node_id=node)


def _forget(group: str, key: str) -> None:
    clear(group, key)
