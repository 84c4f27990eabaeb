"""Gates on the machines of a cluster: a task keeps each alive, on another node when its own is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from edgeflock.common.errors import UsageError
from edgeflock.lab.becoming import program
from edgeflock.lab.children import Children
from edgeflock.lab.cluster.board import Board, Notice
from edgeflock.lab.cluster.errand import environment, make_own, own_place, standing
from edgeflock.lab.cluster.facts import Facts, differences, look
from edgeflock.lab.cluster.joining import Cluster, last_line, teller

_INTERVAL_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0  # before a gate is started again
_LIVED_S = 30.0  # what has lived so long is started again at once
_FAREWELL_S = 10.0


@dataclass(frozen=True)
class Post:
    """One gate, as any node can keep it."""

    name: str
    arguments: tuple[str, ...]  # of fl-gate, but for its name
    listens: bool  # whether they say where
    typed_in: str
    environ: Mapping[str, str]
    home: Facts
    sent: int = 0


def stand(post: Post, address: str, wanted: Callable[[], bool]) -> str:
    """Keep a gate on this node, by whose address clients reach it; return why that has ended."""
    if differ := differences(post.home, look()):
        return f"node {look().node}: {differ[0]}"
    make_own()
    folder, pause = own_place("gates"), _FIRST_PAUSE_S
    folder.mkdir(exist_ok=True)
    place = () if post.listens else (f"--listen={address}:0",)
    words = [*program("fl-gate"), *post.arguments, *place, f"--name={post.name}"]
    with Children(patience_s=_FAREWELL_S) as children, standing(post.typed_in):
        while wanted():
            begin = time.monotonic()
            child = children.start("fl-gate", words, folder / f"{post.name}.log", environment(post.environ))
            while child.code is None and wanted():
                time.sleep(_INTERVAL_S)
            if child.code == 2:
                return f"node {address}: {child.refusal() or child.ending()}"
            pause = _FIRST_PAUSE_S if time.monotonic() - begin > _LIVED_S else pause
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, 2 * pause)
    return ""


def keep(cluster: Cluster, posts: Sequence[Post], say: Callable[[str], None]) -> None:
    """Keep gates alive until somebody interrupts. Raises UsageError if one of them is refused."""
    ray = cluster.ray
    board = ray.remote(num_cpus=0)(Board).options(scheduling_strategy=cluster.here_only()).remote()
    task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_stand)
    sent: dict[Any, Post] = {}

    def send(post: Post) -> None:
        post = replace(post, sent=time.time_ns())
        sent[task.remote(post, board)] = post

    try:
        for post in posts:
            send(post)
        told: dict[str, Notice] = {}
        while True:
            done, _ = ray.wait(list(sent), timeout=_INTERVAL_S)
            entries, _ = ray.get(board.read.remote())
            stranded = [one for one in sent if cluster.strands(entries.get(sent[one].name), sent[one].sent)]
            for reference in {*done, *stranded}:
                post = sent.pop(reference)
                why = _why(ray, reference) if reference in done else "its node hangs"
                say(f"{post.name} is lost and is kept elsewhere: {why}")
                send(post)
            _tell(cluster, entries, told, say)
    finally:
        for reference in sent:
            with suppress(ray.exceptions.RayError):
                ray.cancel(reference, force=False)
        ray.wait(list(sent), num_returns=len(sent), timeout=_FAREWELL_S)


def _why(ray: Any, reference: Any) -> str:
    try:
        refused = ray.get(reference)
    except ray.exceptions.RayError as error:
        return last_line(error)
    if refused:
        raise UsageError(refused)
    return "it was told to go"


def _tell(
    cluster: Cluster, entries: Mapping[str, Notice], told: dict[str, Notice], say: Callable[[str], None]
) -> None:
    """Say where gates are that have been started."""
    for name, entry in entries.items():
        if (before := told.get(name)) is None or before.sent != entry.sent:
            told[name] = entry
            where = next((node.address for node in cluster.nodes() if node.id == entry.node), entry.node)
            say(f"{name} is started on {where}")


def _stand(post: Post, board: Any) -> str:
    """Keep a gate as a task."""
    import ray

    tell = teller(board, post.name, post.sent)
    return stand(post, ray.util.get_node_ip_address(), lambda: tell(0))
