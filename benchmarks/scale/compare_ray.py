"""A grid of six cells here and on a Ray cluster of one and two nodes, one of them killed: time and bits."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.children import Child, Children, environment, program
from benchmarks.scale.asked import Asked, Family, Found, Held, Row, Skipped, at_most

CELLS, ROUNDS, MOST_S = 6, 20, 1.0
_ADDRESS = "127.0.0.1:6379"  # in a namespace of its own, where nothing else is said
_STARTED, _START_S = "Ray runtime started", 60.0
_STORE_BYTES = 100_000_000
_GRID = """
[grid]
seed = [{seeds}]

[run]
clients = 2
processes = 1
rounds = {rounds}
"""


def measure(asked: Asked, folder: Path) -> Iterator[Found]:
    if missing := _missing():
        yield Skipped(f"The grid on Ray was not taken: {missing}.")
        return
    cells = 2 if asked.quick else CELLS
    grid = folder / "grid.toml"
    grid.write_text(_GRID.format(seeds=", ".join(map(str, range(cells))), rounds=ROUNDS))
    here_s, here = _here(grid, folder / "here", asked.limit_s)
    yield Row(("here, 2 cells at a time", here_s, here_s / cells, 0.0, "-"))
    for words, nodes, kills in (
        ("Ray, a node of 2 cores", (2,), False),
        ("Ray, two nodes of 1 core", (1, 1), False),
        ("the same, one killed when a cell was done", (1, 1), True),
    ):
        with _cluster() as cluster:
            for cpus in nodes:
                cluster.start(cpus)
            out = folder / words.replace(" ", "-").replace(",", "")
            seconds, there = cluster.compare(grid, out, asked.limit_s, kills=kills)
        more = (seconds - here_s) / cells
        yield Row((words, seconds, seconds / cells, more, "the same" if there == here else "others"))
        yield Held(f"models as here, {words}", float(there == here), "1", there == here)
        if nodes == (2,):
            yield at_most("more seconds a cell than here, on one node", more, MOST_S)


def _missing() -> str:
    """Return why it cannot be taken, empty if it can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed; `pip install -c constraints.txt '.[ray]'`"
    made = (
        shutil.which("ip") and not subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode
    )
    return "" if made else "no network namespaces can be made here, and Ray listens on all interfaces"


@dataclass
class Cluster:
    """A head on which nothing runs, and nodes, in one namespace."""

    namespace: str
    folder: Path
    children: Children
    nodes: list[Child] = field(default_factory=list)

    @property
    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]

    def start(self, cpus: int) -> None:
        """Start a node, the first one as the head."""
        place = self.folder / f"n{len(self.nodes)}"
        (place / "tmp").mkdir(parents=True)
        head = ["--head", "--port=6379", f"--temp-dir={self.folder}/ray", "--include-dashboard=false"]
        role = [f"--address={_ADDRESS}"] if self.nodes else head
        size = [f"--num-cpus={cpus}", "--num-gpus=0", f"--object-store-memory={_STORE_BYTES}"]
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        given = [*self.inside, *ray, "--node-ip-address=127.0.0.1", *role, *size]
        own = {"HOME": str(place), "TMPDIR": str(place / "tmp")}
        node = self.children.start(f"node {len(self.nodes)}", given, place / "log", self._environment(**own))
        self.children.wait_until(lambda: _STARTED in node.said(), _START_S)
        self.nodes.append(node)

    def compare(self, grid: Path, out: Path, limit_s: float, *, kills: bool) -> tuple[float, list[str]]:
        """Run the grid; return seconds and digests."""
        flags = ["--on", f"ray={_ADDRESS}", "--cell-cpus", "1"]
        own = self._environment(HOME=str(self.folder / "n0"))
        command = [*self.inside, *program("fl-lab"), "compare", str(grid), "--out", str(out), *flags]
        begun = time.monotonic()
        asked = self.children.start("fl-lab compare", command, out.with_suffix(".log"), own)
        if kills:
            self.children.wait_until(lambda: bool(digests(out)) or asked.code is not None, limit_s)
            self._kill(self.nodes.pop())
        self.children.wait_until(lambda: asked.code is not None, limit_s)
        return time.monotonic() - begun, digests(out)

    def _kill(self, node: Child) -> None:
        """End a node as a power cut would."""
        for one in psutil.Process(node.process.pid).children(recursive=True):
            if one.name() == "raylet":
                one.kill()
        self.children.all.remove(node)
        node.process.wait(_START_S)

    def _environment(self, **own: str) -> dict[str, str]:
        return {**environment(), "RAY_TMPDIR": str(self.folder), **own}


@contextmanager
def _cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="sr", dir="/tmp"))  # paths of sockets are short
    namespace = folder.name
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    try:
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        with Children() as children:
            cluster = Cluster(namespace, folder, children)
            cluster.start(0)
            yield cluster
    finally:
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _here(grid: Path, out: Path, limit_s: float) -> tuple[float, list[str]]:
    """Run the grid on this machine."""
    begun = time.monotonic()
    command = [*program("fl-lab"), "compare", str(grid), "--out", str(out), "--jobs", "2"]
    with Children() as children:
        asked = children.start("fl-lab compare", command, out.with_suffix(".log"), environment())
        children.wait_until(lambda: asked.code is not None, limit_s)
    return time.monotonic() - begun, digests(out)


def digests(out: Path) -> list[str]:
    """Return those of the models of a grid's cells that are done."""
    every = sorted(out.glob("cells/*/model.safetensors"))
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in every]


FAMILY = Family(
    title="A grid on Ray",
    columns=("where", "s in all", "s a cell", "more than here a cell, s", "models"),
    measure=measure,
    about=f"`fl-lab compare`, {CELLS} cells of mlp on digits, {ROUNDS} rounds, two clients in one process. "
    "The cluster is one machine with two cores, so Ray can only cost here; the seconds on Ray hold its "
    "driver's start and the probe of every node, once for a grid.",
)
