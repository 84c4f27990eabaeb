"""A Ray cluster while it is joined: its nodes, what they have, and tasks and actors placed on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from edgeflock.common.command import extras
from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import Address
from edgeflock.lab.cluster.board import Notice
from edgeflock.lab.cluster.facts import Facts, look
from edgeflock.lab.cluster.head import Head, find
from edgeflock.lab.cluster.probe import NodeFound, Question

_PROBE_S = 120.0
_LOOK_EVERY_S = 2.0
_NOT_HERE = "edgeflock is missing there: install the same version on every node"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or a part of one."""

    id: str
    address: str
    resources: dict[str, float]

    def holds(self, cpus: float, gpus: float, memory: int) -> int:
        """Return how many tasks of that size it holds at a time."""
        wanted = (("CPU", cpus), ("GPU", gpus), ("memory", float(memory)))
        return int(min((self.resources.get(name, 0.0) / need for name, need in wanted if need), default=1.0))


@dataclass(frozen=True)
class Cluster:
    """The cluster of which this process is a driver."""

    ray: Any
    head: Head
    here: Facts
    _living: set[str] = field(default_factory=set)
    _asked_next: list[float] = field(default_factory=lambda: [0.0])

    def nodes(self) -> list[Node]:
        return [
            Node(one["NodeID"], one["NodeManagerAddress"], dict(one["Resources"]))
            for one in self.ray.nodes()
            if one["Alive"]
        ]

    def alive(self) -> set[str]:
        """Return the nodes that the head takes for alive, as it said last: it is asked now and then.

        Of a node that hangs Ray reports no task as lost as long as the task's process answers, though what
        comes of it cannot be fetched any more.
        """
        if time.monotonic() >= self._asked_next[0]:
            self._asked_next[0] = time.monotonic() + _LOOK_EVERY_S
            self._living.clear()
            self._living.update(node.id for node in self.nodes())
        return self._living

    def strands(self, entry: Notice | None, sent: int) -> bool:
        """Whether what was sent then is on a node that is gone, though nobody has said that it is lost."""
        return entry is not None and entry.sent == sent and entry.node not in self.alive()

    def on(self, node: str) -> Any:
        """Return how a task says that it is for that node and no other."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node, soft=False)

    def here_only(self) -> Any:
        return self.on(self._own)

    @property
    def _own(self) -> str:
        return str(self.ray.get_runtime_context().get_node_id())

    @property
    def address(self) -> str:
        """Where other nodes reach this machine."""
        return next(node.address for node in self.nodes() if node.id == self._own)

    def probe(self, question: Question) -> list[NodeFound]:
        """Ask every node; one that goes meanwhile is left out. Raises UsageError with a sentence."""
        ask = self.ray.remote(num_cpus=0, max_retries=0, max_calls=1)(_asking())
        told = asdict(question)
        asked = {
            ask.options(scheduling_strategy=self.on(node.id)).remote(told): node for node in self.nodes()
        }
        done, late = self.ray.wait(list(asked), num_returns=len(asked), timeout=_PROBE_S)
        found = [self._answer(reference, asked[reference]) for reference in done]
        if late:
            raise UsageError(f"node {asked[late[0]].address} has not answered within {_PROBE_S:.0f} s")
        return [one for one in found if one is not None]

    def _answer(self, reference: Any, node: Node) -> NodeFound | None:
        try:
            found = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            if node.id not in {one.id for one in self.nodes()}:
                return None
            raise UsageError(f"node {node.address} cannot be looked at: {last_line(error)}") from None
        if found is None:
            raise UsageError(f"node {node.address}: {_NOT_HERE}")
        assert isinstance(found, NodeFound)
        return found


def last_line(error: BaseException) -> str:
    """Return what an error of Ray says, without the trace of another process."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), repr(error))


def teller(board: Any, key: str, sent: int) -> Callable[[int], bool]:
    """Return how a task tells a board how far it is, and hears whether it is still wanted.

    Nobody waits for the board: the answer is that to a question of before.
    """
    import ray
    from ray.exceptions import RayError

    node, wanted = ray.get_runtime_context().get_node_id(), True
    asked: list[Any] = []

    def tell(round: int) -> bool:
        nonlocal wanted
        if asked and ray.wait(asked, timeout=0)[0]:
            with suppress(RayError):
                wanted = bool(ray.get(asked[0]))
            asked.clear()
        if not asked:
            asked.append(board.tell.remote(key, sent, round, node))
        return wanted

    return tell


def _asking() -> Callable[[dict[str, Any]], Any]:
    """Return the task of the look at a node; it travels as a value, as edgeflock may be missing there."""

    def ask(told: dict[str, Any]) -> Any:
        try:
            from edgeflock.lab.cluster.probe import Question, answer
        except ImportError:
            return None
        return answer(Question(**told))

    return ask


@contextmanager
def joined(asked: str, insecure: bool) -> Iterator[Cluster]:
    """Join the cluster at an address, or the one that is known here; leave it afterwards.

    Nothing is started: a head of our own would listen to everybody. Raises UsageError with a sentence.
    """
    extras.require("--on ray", "ray")
    head = find(asked)
    head.require_trust(insecure)
    import ray

    try:
        ray.init(head.address.target, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"the Ray at {head.address.target} cannot be joined: {last_line(error)}") from None
    try:
        cluster = Cluster(ray, head, look())
        for node in cluster.nodes():
            Head(Address(node.address, head.address.port), head.guarded).require_trust(insecure)
        yield cluster
    finally:
        ray.shutdown()


def slots(nodes: Sequence[Node], cpus: float, gpus: float, memory: int) -> int:
    """Return how many tasks of that size they hold at a time.

    Raises UsageError with a sentence if no node holds one.
    """
    held = sum(node.holds(cpus, gpus, memory) for node in nodes)
    if not held:
        most = max((node.resources.get("CPU", 0.0) for node in nodes), default=0.0)
        asks = f"{cpus:g} CPUs, {gpus:g} GPUs and {memory / 2**30:g} GiB"
        raise UsageError(
            f"no node has room for a cell that asks for {asks}: the largest has {most:g} CPUs "
            "(--cell-cpus, --cell-gpus, --cell-memory say what a cell takes)"
        )
    return held
