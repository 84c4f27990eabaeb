"""What is kept of a client in a run: update and state belong together, and what does not fit is dropped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping.kept import Kept
from edgeflock.client.protocol import Generation
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import Packed, pack
from edgeflock.common.payload.package import IDENTITY, Kind
from edgeflock.methods.kit.values import State

STATE = State({"a": torch.ones(3)}, {"x": 1.0})


def packed(round: int) -> Packed:
    parts = {Kind.DELTA: (torch.full((5,), float(round)), Layout.single("w", 5), IDENTITY)}
    return pack(parts, {}, lambda _: torch.Generator())


def generation(round: int) -> Generation:
    return Generation(round, packed(round).package.digest)


def put(kept: Kept, round: int, state: State | None = STATE) -> None:
    made = packed(round)
    kept.put(Description(round, made.package, 7), TrainCost(train_s=1.0), made, state)


def opened(folder: Path, run: str = "run1", epoch: int = 1) -> tuple[Kept, list[str]]:
    """Return what a process finds, and why it has dropped something."""
    with capture_logs() as lines:
        kept = Kept("c2", folder, run)
        kept.epoch = epoch
        kept.check()
    assert all(
        line["client_id"] == "c2" for line in lines if line["event"] == "outbox_discarded" and "round" in line
    )
    return kept, [str(line["reason"]) for line in lines if line["event"] == "outbox_discarded"]


def test_an_update_and_the_state_it_leads_to_survive_the_process(tmp_path: Path) -> None:
    kept, said = opened(tmp_path)
    assert (kept.entry, kept.candidate, kept.is_former, said) == (None, None, False, [])
    put(kept, 3)
    again, said = opened(tmp_path)
    assert again.entry is not None
    assert (again.entry.run_id, again.entry.round, again.entry.description.moved) == ("run1", 3, True)
    assert (again.entry.epoch, again.candidate, said) == (1, generation(3), [])
    descriptor = again.open_payload()
    assert os.read(descriptor, 99) == b"".join(map(bytes, packed(3).pieces))
    os.close(descriptor)


@pytest.mark.parametrize(("state", "moved"), [(STATE, True), (None, False), (State(), False)])
def test_an_update_says_whether_the_state_moves_with_it(
    tmp_path: Path, state: State | None, moved: bool
) -> None:
    kept, _ = opened(tmp_path)
    put(kept, 3, state)
    assert kept.entry is not None
    assert (kept.entry.candidate, kept.candidate is not None) == (moved, moved)
    assert opened(tmp_path)[1] == []


def test_an_update_of_another_run_is_dropped_with_a_word(tmp_path: Path) -> None:
    put(opened(tmp_path)[0], 3)
    kept, said = opened(tmp_path, "run2")
    assert (kept.entry, said) == (None, ["it belongs to run run1, the server has run run2"])
    assert opened(tmp_path)[0].entry is None


def test_an_update_whose_state_is_torn_is_dropped_with_a_word(tmp_path: Path) -> None:
    """Delivered and counted it would leave the client without its state."""
    put(opened(tmp_path)[0], 3)
    (candidate,) = tmp_path.rglob("candidate*")
    candidate.write_bytes(candidate.read_bytes()[:-4])
    kept, said = opened(tmp_path)
    assert (kept.entry, said) == (None, ["its state is torn: the round is trained again"])
    put(kept, 3, None)
    candidate.unlink(missing_ok=True)
    assert opened(tmp_path)[0].entry is not None  # it needs none


def test_an_update_of_before_the_server_went_back_is_a_former_one(tmp_path: Path) -> None:
    kept, _ = opened(tmp_path)
    put(kept, 3)
    assert not kept.is_former
    kept.epoch = 2
    assert kept.is_former


def test_what_counted_moves_the_state_and_what_did_not_leaves_it(tmp_path: Path) -> None:
    kept, _ = opened(tmp_path)
    put(kept, 3)
    entry = kept.settle(generation(3))
    assert entry is not None
    assert (entry.round, kept.entry, kept.candidate, kept.generations()) == (3, None, None, (generation(3),))
    assert kept.load().scalars == {"x": 1.0}
    put(kept, 4)
    assert kept.settle(None) is not None
    assert (kept.entry, kept.candidate, kept.generations()) == (None, None, (generation(3),))
    put(kept, 5, None)  # no step was done
    kept.settle(generation(5))
    assert (kept.generations(), kept.forgotten) == ((generation(3),), None)


def test_the_verdict_on_an_update_that_was_torn_moves_its_whole_candidate(tmp_path: Path) -> None:
    put(opened(tmp_path)[0], 3)
    (meta,) = tmp_path.rglob("meta")
    meta.write_bytes(b"torn")
    kept, said = opened(tmp_path)
    assert len(said) == 1
    assert kept.settle(generation(3)) is None
    assert kept.generations() == (generation(3),)


def test_going_back_says_whether_there_was_a_later_state(tmp_path: Path) -> None:
    kept, _ = opened(tmp_path)
    for round in (3, 4):
        put(kept, round)
        kept.settle(generation(round))
    assert not kept.rewind(4)
    assert kept.rewind(3)
    assert kept.generations() == (generation(3),)
    with capture_logs() as lines:
        kept.forget(generation(9))
    assert (kept.generations(), kept.forgotten, len(lines)) == ((), generation(9), 1)


def test_nothing_is_dropped_where_there_is_nothing(tmp_path: Path) -> None:
    with capture_logs() as lines:
        opened(tmp_path)[0].drop("no reason")
    assert lines == []
