"""The phases of a run: what may follow what, in the table, on its page and in runs."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from edgeflock.server.core.decisions import Ended, EndingKind
from edgeflock.server.core.effects import Persist
from edgeflock.server.core.events import Diverged, Done, ResumedRound, Started, StopAsked
from edgeflock.server.core.phases import FOLLOWS, InvalidTransition, Phase, Position
from support.desk import Desk, desk_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
ARROWS = {(before, after) for before in FOLLOWS for after in FOLLOWS[before]}
SEATS = ((0, "c0"), (1, "c1"))


def test_the_architecture_page_explains_every_arrow_and_no_other() -> None:
    section = PAGE.read_text("utf-8").partition("## The machine of a run")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z`, ]+`) \| `([a-z]+)` \|", section, re.MULTILINE)
    drawn = [(Phase(before), Phase(after)) for all_, after in rows for before in re.findall(r"[a-z]+", all_)]
    assert sorted(drawn) == sorted(ARROWS)


@pytest.mark.parametrize(("before", "after"), sorted(set(product(Phase, Phase)) - ARROWS))
def test_what_the_table_does_not_have_is_refused(before: Phase, after: Phase) -> None:
    position = Position()
    position.phase = before
    with pytest.raises(InvalidTransition, match=rf"invalid transition \[{before} -> {after}\]"):
        position.become(after)
    assert position.phase is before


def test_runs_walk_every_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: set[tuple[Phase, Phase]] = set()
    become = Position.become

    def watched(position: Position, phase: Phase) -> None:
        walked.add((position.phase, phase))
        become(position, phase)

    monkeypatch.setattr(Position, "become", watched)
    desk = Desk(2, rounds=2, closes=True).gather()
    for _ in range(3):
        desk.deliver(0, 1)
    assert desk.machine.phase is Phase.ENDED
    for phase in (Phase.GATHERING, Phase.OPENING, Phase.OPEN, Phase.COMMITTED):
        desk_in(phase).post(StopAsked("enough", 0.0))
    for phase in (Phase.FOLDING, Phase.COMMITTING):
        desk_in(phase).post(Diverged(1, "the sum is not finite", 0.0))
    for known in (
        Started(0.0, SEATS, 1, samples=dict.fromkeys(range(3), 10)),
        Started(0.0, SEATS, 1, ResumedRound(2, (0, 1), counted=())),
        Started(0.0, SEATS, 1, limit="the budget is used up"),
        Started(0.0, SEATS, 1, ended=Ended(EndingKind.STOPPED, "enough", 1)),
    ):
        desk = Desk(2, closes=True)
        desk.holding = (Persist,)
        desk.post(known)
        desk.post(Done("enough is learnt", 0.0))
    assert walked == ARROWS
