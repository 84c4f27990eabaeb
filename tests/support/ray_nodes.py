"""A Ray cluster in a network namespace: nodes as `ray start` makes them, each with folders of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from support.commands import clean_environ
from support.processes import until

ADDRESS = "127.0.0.1:6379"  # in the namespace, where nothing else is said
_NUMBERS = itertools.count()
_SOON = (  # a node that says nothing is dead after 3 s, not after 75
    '{"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_timeout_ms": 1000, '
    '"health_check_failure_threshold": 3}'
)


@dataclass
class RayNode:
    """One machine, as far as Ray can tell."""

    folder: Path  # its temporary directory and the home of its user
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def raylet(self) -> psutil.Process:
        every = psutil.Process(self.process.pid).children(recursive=True)
        return next(one for one in every if one.name() == "raylet")

    def started(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "Ray runtime started" in self.log.read_text()

    def kill(self) -> None:
        """End the raylet as a power cut would; its workers notice."""
        self.raylet.kill()

    def works_on(self, run: Path) -> bool:
        """Whether a process of this node has a part in that run."""
        every = psutil.Process(self.process.pid).children(recursive=True)
        return any(str(run) in " ".join(one.cmdline()) for one in every)

    def runs(self) -> list[Path]:
        """Return the run directories that lie here."""
        return sorted(self.folder.glob("tmp/edgeflock-*/*/cells/*"))


@dataclass
class RayNodes:
    """A cluster, and how a command is started where it can be reached."""

    namespace: str
    folder: Path
    environ: dict[str, str]
    address: str = ADDRESS
    nodes: list[RayNode] = field(default_factory=list)
    gone: list[RayNode] = field(default_factory=list)

    def start(self, cpus: int, *words: str, **environ: str) -> RayNode:
        """Start a node, the first one as the head."""
        place = self.folder / f"n{len(self.nodes) + len(self.gone)}"
        (place / "tmp").mkdir(parents=True)
        role = ["--head", "--port=6379", f"--temp-dir={self.folder / 'ray'}", f"--system-config={_SOON}"]
        role = [f"--address={self.address}"] if self.nodes else [*role, "--include-dashboard=false"]
        role.append(f"--node-ip-address={self.address.partition(':')[0]}")
        size = [f"--num-cpus={cpus}", "--num-gpus=0", "--object-store-memory=100000000"]
        program = str(Path(sys.executable).with_name("ray"))
        log = place / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self.inside, program, "start", "--block", "--disable-usage-stats", *role, *size, *words],
                env=clean_environ(HOME=str(place), TMPDIR=str(place / "tmp"), **self.environ, **environ),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        node = RayNode(place, process, log)
        self.nodes.append(node)
        until(lambda: node.started() or None, log.read_text)
        return node

    def replace(self, node: RayNode, cpus: int) -> None:
        """Start a node for one that is gone."""
        self.forget(node)
        self.start(cpus)

    def forget(self, node: RayNode) -> None:
        """End what is left of a node, and wait until the cluster knows that it is gone."""
        _end([node])
        self.gone.append(node)
        self.nodes.remove(node)

    @property
    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]

    def command(self, *words: object, **environ: str) -> subprocess.Popen[str]:
        """Start fl-lab where the cluster is; its user's home is that of the head."""
        program = str(Path(sys.executable).with_name("fl-lab"))
        return subprocess.Popen(
            [*self.inside, program, *map(str, words)],
            env=clean_environ(HOME=str(self.nodes[0].folder), **self.environ, **environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run fl-lab to its end."""
        process = self.command(*words, **environ)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, our_own(err))

    def stop(self) -> None:
        _end(self.nodes[1:])
        _end(self.nodes[:1])


def _end(nodes: Sequence[RayNode]) -> None:
    """Let nodes leave; kill what does not."""
    every = [one for node in nodes for one in _alive(node.process.pid)]
    for node in nodes:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(node.process.pid).terminate()
    _, late = psutil.wait_procs(every, 5)
    for one in late:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    for node in nodes:
        node.process.wait()


def our_own(errors: str) -> str:
    """Return what was said on stderr without what Ray says of a network without a way out."""
    return "".join(line for line in errors.splitlines(keepends=True) if "network_util.cc" not in line)


def _alive(pid: int) -> list[psutil.Process]:
    try:
        own = psutil.Process(pid)
        return [own, *own.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextlib.contextmanager
def ray_nodes(*, address: str = "127.0.0.1") -> Iterator[RayNodes]:
    """Make a namespace for a cluster; skip the test where that cannot be, or Ray is not installed."""
    pytest.importorskip("ray", reason="ray is not installed")
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed")
    namespace = f"edgeflock-r{os.getpid()}-{next(_NUMBERS)}"
    made = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no namespaces can be made here: {made.stderr.strip()}")
    folder = Path(tempfile.mkdtemp(prefix="fr"))  # paths of sockets are short
    cluster = RayNodes(namespace, folder, {"RAY_TMPDIR": str(folder)}, f"{address}:6379")
    try:
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "-n", namespace, "address", "add", f"{address}/32", "dev", "lo"], check=False)
        yield cluster
    finally:
        cluster.stop()
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
