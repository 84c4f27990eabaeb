"""Own data that grow: when they are asked for again, and with which of them a round goes on after a kill."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import structlog.testing
import torch

from edgeflock.client.config import ClientConfig
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.protocol import Extent
from edgeflock.client.training.data import HostedData, Member
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.payload.layout import NO_BUFFERS, NO_COUNTERS, Layout, ModelLayouts
from edgeflock.common.run import ModelDescription, RunDescription
from support.training import whole

LAYOUTS = ModelLayouts(Layout.single("w", 1), NO_BUFFERS, NO_COUNTERS)
HEAD = "a,b,state\n"
GROWING = """
import numpy as np
from torch.utils.data import TensorDataset
calls = 0
def arrays():
    global calls
    calls += 1
    return np.ones((4 * calls, 2), np.float32), np.arange(4 * calls) % 3
class Counted:
    def __init__(self): self.count, self.read = 4, 0
    def __len__(self): return self.count
    def __getitem__(self, row):
        self.read += 1
        return np.zeros(2, np.float32), row % 3
DATASET = Counted()
def dataset(): return DATASET
"""


def run_of(name: str = "r") -> RunDescription:
    model = ModelDescription("mlp", (2,), 3)
    return RunDescription(name, 0, 0, "fedavg", {}, model, LAYOUTS, None, 4)


def hosted(source: Path, refresh: str = "round") -> HostedData:
    """Return the data of a process that has just begun."""
    found = HostedData(ClientConfig(data=source, label=("state",), refresh=refresh), torch.device("cpu"))
    found.own("c")
    return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("a,b,state\n1,2,0\n3,4,1\n")
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def samples(member: Member) -> tuple[int, tuple[int, ...]]:
    return member.samples, member.class_counts


def test_every_round_has_the_lines_that_are_there_and_whole(log: Path) -> None:
    data = hosted(log)
    assert samples(data.member(run_of(), "c", 0)) == (2, (1, 1, 0))
    append(log, "5,6,2\n7,")
    second = data.member(run_of(), "c", 0, round=1)
    assert samples(second) == (3, (1, 1, 1))
    append(log, "8,0\n")
    assert samples(data.member(run_of(), "c", 0, round=2)) == (4, (2, 1, 1))
    assert samples(second) == (3, (1, 1, 1))


def test_data_that_have_not_changed_are_not_made_again(log: Path) -> None:
    data = hosted(log)
    one, other = (data.member(run_of(), "c", 0, round=round) for round in (1, 2))
    assert other.data is one.data
    assert one.extent is not None
    assert other.extent == Extent(2, 2, one.extent.digest)


def test_a_run_keeps_the_data_that_it_began_with_and_the_next_has_newer(log: Path) -> None:
    data = hosted(log, "run")
    first = data.member(run_of(), "c", 0)
    append(log, "5,6,2\n")
    assert samples(data.member(run_of(), "c", 0)) == samples(first) == (2, (1, 1, 0))
    assert samples(data.member(run_of("next"), "c", 0)) == (3, (1, 1, 1))


def test_a_round_that_was_begun_before_a_kill_goes_on_with_the_same_samples(log: Path) -> None:
    begun = hosted(log).member(run_of(), "c", 0, round=5)
    append(log, "5,6,2\n")
    again = hosted(log)
    assert again.member(run_of(), "c", 0).samples == 3
    member = again.member(run_of(), "c", 0, round=5, begun=begun.extent)
    assert all(torch.equal(*pair) for pair in zip(whole(member.data), whole(begun.data), strict=True))
    assert (member.class_counts, member.extent) == (begun.class_counts, begun.extent)
    assert again.member(run_of(), "c", 0, round=6).samples == 3


@pytest.mark.parametrize(
    "text", ["a,b,state\n1,2,0\n", "a,b,state\n1,2,1\n3,4,1\n", "a,b,state\n1,9,0\n3,4,1\n"]
)
def test_samples_that_a_round_was_begun_with_and_are_gone_are_said(log: Path, text: str) -> None:
    begun = hosted(log).member(run_of(), "c", 0, round=5)
    log.write_text(text)
    with structlog.testing.capture_logs() as said:
        member = hosted(log).member(run_of(), "c", 0, round=5, begun=begun.extent)
    assert member.samples == text.count("\n") - 1
    told = [entry for entry in said if entry["event"] == "data_changed"]
    assert [(entry["begun"], entry["samples_then"]) for entry in told] == [("round 5", 2)]


def test_a_mistake_that_has_come_into_a_log_is_heard_of_and_passes_when_it_is_mended(log: Path) -> None:
    data = hosted(log)
    whole_log = log.read_text()
    append(log, "5,x,2\n")
    with pytest.raises(EdgeflockError, match="line 4: column 'b' is 'x'"):
        data.member(run_of(), "c", 0, round=1)
    log.write_text(whole_log + "5,6,2\n")
    assert data.member(run_of(), "c", 0, round=1).samples == 3


def test_what_a_round_was_begun_with_is_noted_on_the_disk(tmp_path: Path) -> None:
    kept = Kept("c", tmp_path / "c", "r")
    assert kept.extent(3) is None
    kept.keep_extent(Extent(3, 20, "abc"))
    assert Kept("c", tmp_path / "c", "r").extent(3) == Extent(3, 20, "abc")
    assert Kept("c", tmp_path / "c", "r").extent(4) is None
    (tmp_path / "c/runs/r/data.json").write_text('{"round": 3, "samp')
    assert Kept("c", tmp_path / "c", "r").extent(3) is None


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "growing.py").write_text(GROWING)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "growing"
    sys.modules.pop("growing", None)


def of_factory(reference: str, refresh: str = "round") -> HostedData:
    found = HostedData(ClientConfig(data=Path(reference), refresh=refresh), torch.device("cpu"))
    found.own("c")
    return found


def test_a_factory_is_called_for_every_round(module: str) -> None:
    data = of_factory(f"{module}:arrays")
    counts = [data.member(run_of(), "c", 0, round=round).samples for round in (0, 1, 2)]
    assert counts == [4, 8, 12]
    assert data.again("c") is data.own("c")  # between two runs it is not called at every attempt to join


def test_a_dataset_that_has_not_grown_is_not_read_through_again(module: str) -> None:
    data = of_factory(f"{module}:dataset")
    dataset = sys.modules[module].DATASET
    read = dataset.read
    assert data.member(run_of(), "c", 0, round=1).samples == 4
    asked = dataset.read
    assert data.member(run_of(), "c", 0, round=2).samples == 4
    assert dataset.read == asked
    assert read >= 4
    dataset.count = 6
    assert samples(data.member(run_of(), "c", 0, round=3)) == (6, (2, 2, 2))


def test_of_a_mapped_array_that_has_grown_the_first_samples_are_the_same(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    np.save(tmp_path / "y.npy", np.arange(6) % 3)

    def hosted_arrays() -> HostedData:
        found = HostedData(ClientConfig(data=tmp_path, refresh="round"), torch.device("cpu"))
        found.own("c")
        return found

    begun = hosted_arrays().member(run_of(), "c", 0, round=2)
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.float32).reshape(8, 2))
    np.save(tmp_path / "y.npy", np.arange(8) % 3)
    assert hosted_arrays().member(run_of(), "c", 0, round=2, begun=begun.extent).samples == 6
    assert hosted_arrays().member(run_of(), "c", 0, round=3).samples == 8
