"""fl-lab run on a Ray cluster: clients on its nodes, over TLS, and a node that dies under them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.server.journal.reader import Feed
from support.commands import processes_of, run
from support.processes import until
from support.ray_nodes import RayNodes, our_own, ray_nodes

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
OPTIONS = ("--model=linear", "--clients=4", "--processes=2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """A head on which nothing runs, and two nodes, by an address that is no loopback."""
    with ray_nodes(address="192.0.2.1") as made:
        made.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
        made.start(0)
        made.start(1)
        made.start(1)
        yield made


def digest(run_dir: Path) -> str:
    return hashlib.sha256((run_dir / "model.safetensors").read_bytes()).hexdigest()


def here(folder: Path, *words: str) -> str:
    """Return the digest of the model of the same run on this machine."""
    done = run("fl-lab", "run", *OPTIONS, *words, f"--run-dir={folder}", timeout_s=200)
    assert done.returncode == 0, done.stderr
    return digest(folder)


def committed(run_dir: Path) -> int:
    feed = Feed(run_dir)
    try:
        return sum(event.name == "round_committed" for event in feed.read())
    finally:
        feed.close()


def test_clients_on_nodes_come_to_the_same_model_over_tls(cluster: RayNodes, tmp_path: Path) -> None:
    words = ("--method=scaffold", "--rounds=4")
    out = tmp_path / "a"
    done = cluster.run("run", *OPTIONS, *words, f"--run-dir={out}", "--on=ray")
    assert (done.returncode, done.stderr) == (0, "")
    assert digest(out) == here(tmp_path / "here", *words)
    assert "tls, with certificates of clients" in (out / "logs" / "server.jsonl").read_text()
    assert '"event": "ended"' in (out / "logs" / "client-0.jsonl").read_text()
    assert [list(node.folder.glob("tmp/edgeflock-*/*/hosts/*")) for node in cluster.nodes] == [[], [], []]
    assert not list(out.glob("tls/client*")), "keys of clients stay on their nodes"


def test_clients_of_a_node_that_dies_go_on_on_another_one(cluster: RayNodes, tmp_path: Path) -> None:
    words = ("--method=fedavg", "--rounds=400")
    state, out = tmp_path / "state", tmp_path / "a"
    cluster.start(1)
    going = cluster.command("run", *OPTIONS, *words, f"--run-dir={out}", "--on=ray", f"--state-root={state}")
    until(lambda: (committed(out) if out.exists() else 0) >= 10 or None, lambda: "ten rounds")
    node = next(node for node in cluster.nodes[1:] if node.works_on(state))
    node.kill()
    said, errors = going.communicate(timeout=300)
    assert (going.returncode, our_own(errors)) == (0, "")
    assert " is lost: they begin again on another one\n" in said
    assert digest(out) == here(tmp_path / "here", *words)
    assert processes_of(state) == []
