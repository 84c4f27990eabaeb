"""fl-lab gates on a Ray cluster: a node that dies under a gate in the midst of a run changes no bit."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from edgeflock.server.journal.reader import Feed
from faults.test_run_ray import digest, here
from support.commands import processes_of
from support.processes import until
from support.ray_nodes import ray_nodes

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
OPTIONS = ("--model=linear", "--clients=4", "--processes=2", "--method=fedavg", "--rounds=300")


def counted(run_dir: Path, name: str) -> int:
    if not run_dir.exists():
        return 0
    feed = Feed(run_dir)
    try:
        return sum(event.name == name for event in feed.read())
    finally:
        feed.close()


def test_gates_are_kept_on_nodes_and_one_whose_node_dies_changes_no_bit(tmp_path: Path) -> None:
    key, out = tmp_path / "key", tmp_path / "a"
    key.write_text("a" * 64)
    key.chmod(0o600)
    with ray_nodes() as cluster:
        cluster.start(0)
        cluster.start(2)
        cluster.start(2)
        gates = cluster.command(
            *("gates", "--on=ray", "--count=2", "--coordinator=127.0.0.1:9299", f"--key={key}")
        )
        going = cluster.command(
            *("run", *OPTIONS, f"--run-dir={out}", "--gate-listen=127.0.0.1:9299", f"--gate-key={key}")
        )
        until(lambda: counted(out, "gate_came") >= 2 or None, lambda: "two gates")
        until(lambda: counted(out, "round_committed") >= 10 or None, lambda: "ten rounds")
        node = next(node for node in cluster.nodes[1:] if node.works_on(Path("--name=ray0")))
        node.kill()
        until(lambda: counted(out, "gate_came") >= 3 or None, lambda: "a gate on the other node")
        _, errors = going.communicate(timeout=300)
        assert (going.returncode, errors) == (0, "")
        gates.send_signal(signal.SIGINT)
        said, _ = gates.communicate(timeout=60)
        assert gates.returncode == 130
        assert "ray0 is lost and is kept elsewhere: " in said
        assert processes_of(key) == []
    assert digest(out) == here(tmp_path / "here", *OPTIONS[3:])
