"""fl-lab compare on a Ray cluster: nodes that die or hang, a driver that dies, and the same models."""

from __future__ import annotations

import csv
import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.server.journal.reader import Feed
from support.commands import processes_of, run
from support.processes import until
from support.ray_nodes import ADDRESS, RayNode, RayNodes, our_own, ray_nodes

pytestmark = pytest.mark.timeout(900)  # nodes start in seconds where there is a core for them
LONG = 400  # rounds
SOON_S = 300.0  # for whatever is waited for: several clusters may start beside each other
ON = f"--on=ray={ADDRESS}"
GRID = """
[grid]
seed = [0, 1]
[run]
model = "linear"
rounds = {rounds}
clients = 2
processes = 1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """A head on which nothing runs, and two nodes."""
    with ray_nodes() as made:
        made.start(0)
        made.start(2)
        made.start(2)
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of the models of the long grid without Ray."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "g.toml").write_text(GRID.format(rounds=LONG))
    assert (
        run("fl-lab", "compare", folder / "g.toml", f"--out={folder / 'out'}", timeout_s=300).returncode == 0
    )
    return digests(folder / "out")


def digests(out: Path) -> list[str]:
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.glob("cells/*/model.safetensors"))
    ]


def grid(folder: Path, rounds: int) -> Path:
    path = folder / "g.toml"
    path.write_text(GRID.format(rounds=rounds))
    return path


def holding(cluster: RayNodes, rounds: int) -> RayNode:
    """Return the node on which a run has committed so many rounds."""

    def look() -> RayNode | None:
        return next((node for node in cluster.nodes for run in node.runs() if committed(run) >= rounds), None)

    return until(look, lambda: f"{rounds} rounds in {[node.runs() for node in cluster.nodes]}", SOON_S)


def committed(run: Path) -> int:
    feed = Feed(run)
    try:
        return sum(event.name == "round_committed" for event in feed.read())
    finally:
        feed.close()


def test_a_cell_on_a_cluster_comes_home_as_if_it_had_run_here(tmp_path: Path) -> None:
    """Its tables, its run directory and its log are where they are without Ray; the node keeps nothing."""
    path, out = tmp_path / "g.toml", tmp_path / "out"
    path.write_text(GRID.format(rounds=3).replace("[0, 1]", "[0]"))
    with ray_nodes() as alone:
        node = alone.start(2)
        done = alone.run("compare", path, f"--out={out}", "--on=ray")
        assert (done.returncode, done.stderr) == (0, "")
        assert node.runs() == []
    assert len(digests(out)) == len(list(out.glob("logs/*.log"))) == 1
    with (out / "cells.csv").open() as file:
        assert [(row["failure"], bool(row["cpu"])) for row in csv.DictReader(file)] == [("", True)]
    (begun,) = out.glob("cells/*")
    assert committed(begun) == 3


@pytest.mark.long
def test_cells_of_a_node_that_dies_are_run_elsewhere_to_the_same_model(
    cluster: RayNodes, here: list[str], tmp_path: Path
) -> None:
    path, out = grid(tmp_path, LONG), tmp_path / "out"
    going = cluster.command("compare", path, f"--out={out}", ON, "--cell-cpus=2")
    node = holding(cluster, 10)
    node.kill()
    said, errors = going.communicate(timeout=300)
    assert (going.returncode, our_own(errors)) == (0, "")
    assert " is lost with its node and begins again on another one\n" in said
    assert digests(out) == here
    until(
        lambda: processes_of(node.folder / "tmp" / "edgeflock-") == [] or None,
        lambda: "its runs to end",
        SOON_S,
    )
    cluster.replace(node, 2)


@pytest.mark.long
def test_a_node_that_hangs_and_comes_back_changes_nothing(
    cluster: RayNodes, here: list[str], tmp_path: Path
) -> None:
    """Its run goes on all the while; it is told that another one has taken its place, and leaves."""
    path, out = grid(tmp_path, LONG), tmp_path / "out"
    going = cluster.command("compare", path, f"--out={out}", ON, "--cell-cpus=2")
    node = holding(cluster, 10)
    raylet = node.raylet
    raylet.suspend()
    said, errors = going.communicate(timeout=300)
    assert (going.returncode, our_own(errors)) == (0, "")
    assert " is lost with its node and begins again on another one\n" in said
    assert "another SHA-256" not in said
    assert digests(out) == here
    until(
        lambda: processes_of(node.folder / "tmp" / "edgeflock-") == [] or None,
        lambda: "its runs to end",
        SOON_S,
    )
    raylet.resume()
    cluster.replace(node, 2)


@pytest.mark.long
def test_a_driver_that_dies_takes_its_cells_along_and_the_same_command_goes_on(
    cluster: RayNodes, here: list[str], tmp_path: Path
) -> None:
    path, out = grid(tmp_path, LONG), tmp_path / "out"
    going = cluster.command("compare", path, f"--out={out}", ON, "--jobs=1", "--cell-cpus=2")
    node = holding(cluster, 10)
    going.kill()
    going.communicate(timeout=60)
    until(
        lambda: processes_of(node.folder / "tmp" / "edgeflock-") == [] or None,
        lambda: "its runs to end",
        SOON_S,
    )
    interrupted = cluster.command("compare", path, f"--out={out}", ON, "--jobs=1", "--cell-cpus=2")
    until(lambda: processes_of(cluster.folder / "n") or None, lambda: "a run to begin", SOON_S)
    interrupted.send_signal(signal.SIGINT)
    _, errors = interrupted.communicate(timeout=100)
    assert interrupted.returncode == 130
    assert "of 2 cells done, the same command goes on\n" in errors
    assert processes_of(cluster.folder / "n1" / "tmp" / "edgeflock-") == []
    done = cluster.run("compare", path, f"--out={out}", ON, "--cell-cpus=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert digests(out) == here


@pytest.mark.long
def test_in_a_common_directory_a_cell_goes_on_where_it_was(
    cluster: RayNodes, here: list[str], tmp_path: Path
) -> None:
    path, out = grid(tmp_path, LONG), tmp_path / "out"
    going = cluster.command("compare", path, f"--out={out}", ON, "--shared-out", "--jobs=1", "--cell-cpus=2")
    (begun,) = until(
        lambda: [run for run in out.glob("cells/*") if committed(run) >= 10] or None, lambda: "a run"
    )
    holder = next(node for node in cluster.nodes[1:] if node.works_on(begun))
    holder.kill()
    _, errors = going.communicate(timeout=300)
    assert (going.returncode, our_own(errors)) == (0, "")
    assert digests(out) == here
    feed = Feed(begun)
    starts = [int(event.number("round") or 0) for event in feed.read() if event.name == "run_started"]
    feed.close()
    assert len(starts) == 2
    cluster.replace(holder, 2)


@pytest.mark.long
def test_a_node_with_other_versions_or_without_the_data_is_named_before_the_first_cell(
    cluster: RayNodes, tmp_path: Path
) -> None:
    fake = tmp_path / "fake" / "torch-1.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    other = cluster.start(1, PYTHONPATH=str(fake.parent))
    path, out = grid(tmp_path, 3), tmp_path / "out"
    refused = cluster.run("compare", path, f"--out={out}", ON)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "torch is 1.0 there and " in refused.stderr
    assert not (out / "cells").exists()
    other.kill()
    cluster.forget(other)
    path.write_text(path.read_text() + 'dataset = "mnist"\n')
    data = cluster.run("compare", path, f"--out={out}", ON, f"--data-root={tmp_path}")
    assert (data.returncode, data.stderr.count("\n")) == (2, 1)
    assert data.stderr.startswith("fl-lab: error: node ")
    assert "mnist" in data.stderr


@pytest.mark.long
def test_beyond_this_machine_a_cluster_without_a_token_is_refused(tmp_path: Path) -> None:
    """With one whoever has another one, or none, is refused, too, and its file is made this user's own."""
    path = grid(tmp_path, 3)
    with ray_nodes(address="192.0.2.1") as open_to_all:
        open_to_all.start(2)
        refused = open_to_all.run(
            "compare", path, f"--out={tmp_path / 'a'}", f"--on=ray={open_to_all.address}"
        )
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "takes commands from whoever reaches it" in refused.stderr
        trusted = open_to_all.run("compare", path, f"--out={tmp_path / 'a'}", "--on=ray", "--insecure")
        assert trusted.returncode == 0, trusted.stderr
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
    with ray_nodes(address="192.0.2.1") as guarded:
        guarded.start(2, **token)
        without = guarded.run("compare", path, f"--out={tmp_path / 'b'}", "--on=ray")
        assert (without.returncode, without.stdout) == (2, "")
        assert "asks for a token: copy that of its head to " in without.stderr
        wrong = guarded.run("compare", path, f"--out={tmp_path / 'b'}", "--on=ray", RAY_AUTH_TOKEN="b" * 64)
        assert (wrong.returncode, "does not take the token of RAY_AUTH_TOKEN" in wrong.stderr) == (2, True)
        kept = guarded.nodes[0].folder / ".ray" / "auth_token"
        kept.parent.mkdir()
        kept.write_text("a" * 64)
        kept.chmod(0o644)
        right = guarded.run("compare", path, f"--out={tmp_path / 'b'}", "--on=ray")
        assert right.returncode == 0, right.stderr
        assert "could be read by others" in right.stderr
        assert kept.stat().st_mode & 0o777 == 0o600
