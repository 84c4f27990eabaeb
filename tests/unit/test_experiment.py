"""How fl-lab starts the clients of a run: in which processes, and as before where a run goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from edgeflock.common.errors import BadValue, EdgeflockError
from edgeflock.lab.demo import WatchedRun
from edgeflock.lab.run.config import LabConfig, recall, remember, usual
from edgeflock.lab.run.experiment import Experiment, dialled, split
from edgeflock.lab.run.glance import Glance
from edgeflock.server.journal.reader import Event


def as_before(run_dir: Path, clients: int, **lab: Any) -> LabConfig:
    asking = SimpleNamespace(run_dir=run_dir, lab=LabConfig(**lab), hosts=None)
    return Experiment._as_before(cast(Experiment, asking), clients)


def test_a_new_run_has_as_many_processes_as_are_asked_for_or_one_for_each_client(tmp_path: Path) -> None:
    assert as_before(tmp_path, 3) == LabConfig(processes=3)
    assert as_before(tmp_path, 3, processes=2) == LabConfig(processes=2)
    assert as_before(tmp_path, 3, processes=3).processes == 3
    with pytest.raises(BadValue, match="--processes is 4, allowed is at most --clients, which is 3"):
        as_before(tmp_path, 3, processes=4)
    assert usual(10**6) == as_before(tmp_path, 10**6).processes
    assert usual(2) == 2


def test_a_run_that_goes_on_keeps_its_processes_and_the_data_of_its_clients(tmp_path: Path) -> None:
    remember(tmp_path, LabConfig(processes=2, client_data="/data/{index}.npz"))
    assert recall(tmp_path) == LabConfig(processes=2, client_data="/data/{index}.npz")
    assert as_before(tmp_path, 3) == LabConfig(processes=2, client_data="/data/{index}.npz")
    assert as_before(tmp_path, 3, processes=2).processes == 2
    with pytest.raises(BadValue, match="--processes is 3, allowed is 2, as before: clients' state is kept"):
        as_before(tmp_path, 3, processes=3)
    moved = as_before(tmp_path, 3, client_data="elsewhere/{index}.npz")
    assert moved.client_data == str(Path.cwd() / "elsewhere" / "{index}.npz")
    remember(tmp_path, LabConfig(processes=2, hold_out=0.2))
    assert recall(tmp_path) == LabConfig(processes=2, hold_out=0.2) == as_before(tmp_path, 3)


def test_the_folders_of_clients_tell_how_many_processes_there_were(tmp_path: Path) -> None:
    assert recall(tmp_path) is None
    for name in ("0", "1"):
        (tmp_path / "clients" / name).mkdir(parents=True)
    (tmp_path / "clients" / "note").touch()
    assert recall(tmp_path) == LabConfig(processes=2)
    assert as_before(tmp_path, 3).processes == 2


@pytest.mark.parametrize(
    ("clients", "processes", "sizes"), [(3, 3, [1, 1, 1]), (7, 3, [2, 2, 3]), (4, 1, [4])]
)
def test_clients_are_hosted_in_parts_as_equal_as_can_be(
    clients: int, processes: int, sizes: list[int]
) -> None:
    parts = split(clients, processes)
    assert [len(part) for part in parts] == sizes
    assert [name for part in parts for name in part] == [f"c{number}" for number in range(clients)]


@pytest.mark.parametrize(
    ("listened", "there"), [("0.0.0.0:9300", "127.0.0.1:9300"), ("192.0.2.7:1", "192.0.2.7:1")]
)
def test_a_server_on_every_interface_is_dialled_on_the_nearest(listened: str, there: str) -> None:
    assert dialled(listened) == there


# ------------------------------------------------------------------------------- a run that is watched


class Told:
    """A journal that is written as it is read, and what is shown of it."""

    behind = False

    def __init__(self, *batches: list[Event]) -> None:
        self.batches, self.said = list(batches), list[str]()
        self.given: dict[str, Any] = {"rounds": "9"}
        self.shown, self.children = self, None

    def read(self) -> list[Event]:
        return self.batches.pop(0)

    def take(self, name: str, fields: Any) -> None:
        self.said.append(name)

    def wait(self, words: str) -> None:
        self.said.append(words)


def event(name: str, **fields: Any) -> Event:
    return Event(0, 0.0, name, fields)


def watched(*batches: list[Event], quiet: bool = False) -> tuple[WatchedRun, Told]:
    told = Told(*batches)
    return WatchedRun(cast(Any, told), cast(Any, told), quiet, cast(Any, None)), told


OPENED, DONE = event("round_opened", round=3), event("round_committed", round=3)


def test_what_is_waited_for_is_looked_for_in_what_came_before_too() -> None:
    run, told = watched([event("round_opened", round=2), OPENED, DONE])
    assert run.until("round_opened", round=3) is OPENED
    assert run.until("round_committed") is DONE
    assert told.said == [
        "round_opened", "round 2 of 9 is open", "round_opened", "round 3 of 9 is open", "round_committed",
    ]  # fmt: skip
    assert watched([OPENED], quiet=True)[0].until("round_opened") is OPENED


def test_a_run_that_ends_before_is_told_with_its_reason() -> None:
    run, _ = watched([OPENED, event("run_ended", kind="failed", reason="it diverged", rounds=2)])
    with pytest.raises(EdgeflockError, match=r"the run ended too soon: .*it diverged"):
        run.until("round_committed")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([OPENED], "in the middle of round 3"),
        ([event("round_committed", round=2), OPENED], "in the middle of round 3"),
        ([OPENED, DONE], "just after round 3"),
    ],
)
def test_a_kill_was_in_a_round_or_after_it_as_the_journal_has_it(events: list[Event], words: str) -> None:
    assert watched(events)[0].when(3) == words


def test_an_interrupt_within_a_question_does_not_wait_for_the_channel(tmp_path: Path) -> None:
    """gRPC's lock may be taken by the call that was interrupted: closing would stand for ever."""
    closed: list[str] = []
    channel = cast(grpc.Channel, SimpleNamespace(close=lambda: closed.append("in good order")))

    def ask(end: BaseException | None) -> None:
        with Glance(tmp_path) as glance:
            glance._channel = channel
            if end is not None:
                raise end

    with pytest.raises(KeyboardInterrupt):
        ask(KeyboardInterrupt())
    assert closed == []
    ask(None)
    assert closed == ["in good order"]
