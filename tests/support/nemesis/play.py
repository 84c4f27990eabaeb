"""Schedules played: each stroke begins when its mark is reached, until the run and all its ends are over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from support.nemesis import judge
from support.nemesis.field import Field, laid_out
from support.nemesis.judge import Left
from support.nemesis.schedule import Mark, Schedule, Stroke
from support.nemesis.strokes import KINDS, Course, Missed

_STEP_S = 0.01
_HANG_S = 150.0  # without a stroke; a hang, and no measure of anything


@dataclass
class Played:
    """What came of a schedule."""

    left: Left | None  # nothing, if it did not come to an end
    findings: list[str] = field(default_factory=list)
    struck: int = 0
    missed: int = 0
    seconds: float = 0.0
    after_s: float = 0.0  # from the last stroke's end to the end of all


@dataclass
class _Waiting:
    """A stroke whose mark is not reached."""

    stroke: Stroke
    base: int | None = None  # bytes when its round was opened
    due: float | None = None  # when it was reached, and the rest of the time to wait


class Actor:
    """Plays one schedule on a federation."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._waiting = [_Waiting(stroke) for stroke in field.schedule.strokes]
        self._active: list[tuple[Stroke, Course, float]] = []
        self.struck = self.missed = 0
        self.last = time.monotonic()  # when a stroke last began or ended

    def play(self) -> None:
        """Play to the end; what is wrong is among the field's findings."""
        while not self._field.over or self._active:
            self._strike()
            self._go_on()
            self._field.step()
            if time.monotonic() > self.last + _HANG_S:
                self._field.findings.append(f"it does not come to an end: {self._state()}")
                return
            time.sleep(_STEP_S)

    def _state(self) -> str:
        field = self._field
        ends = [
            f"{end.name} {'over' if end.over else end.lives[-1].sentence()[:300]}"
            for end in field.ends.values()
        ]
        return f"round {field.progress.committed} committed; {'; '.join(ends)}"

    def _strike(self) -> None:
        for waiting in [waiting for waiting in self._waiting if self._is_due(waiting)]:
            self._waiting.remove(waiting)
            course = KINDS[waiting.stroke.kind](self._field, waiting.stroke)
            self._active.append((waiting.stroke, course, 0.0))
            self.struck += 1
            self.last = time.monotonic()

    def _go_on(self) -> None:
        now, active, self._active = time.monotonic(), self._active, []
        for stroke, course, due in active:
            try:
                due = now + next(course) if now >= due else due
                self._active.append((stroke, course, due))
            except (StopIteration, Missed) as ended:
                self.missed += isinstance(ended, Missed)
                self.last = time.monotonic()
            except Exception as error:  # of the bench itself, too: the other seeds go on
                self._field.findings.append(f"{stroke}: {type(error).__name__}: {error}")

    def _is_due(self, waiting: _Waiting) -> bool:
        mark, now = waiting.stroke.mark, time.monotonic()
        if waiting.due is None and self._is_reached(waiting, mark):
            waiting.due = now + mark.later_s
        return waiting.due is not None and now >= waiting.due

    def _is_reached(self, waiting: _Waiting, mark: Mark) -> bool:
        progress, target = self._field.progress, waiting.stroke.target
        match mark.what:
            case "start":
                return True
            case "listening":
                return progress.listening
            case "ended":
                return progress.ended
            case "opened":
                return progress.opened >= mark.round
            case "settled":
                mine = [number for client, number in progress.settled.items() if client in target]
                return max(mine, default=0) >= mark.round or progress.committed > mark.round
            case "up" | "down" if progress.committed < mark.round:
                return self._has_passed(waiting, mark)
        return progress.committed >= mark.round

    def _has_passed(self, waiting: _Waiting, mark: Mark) -> bool:
        if self._field.progress.opened < mark.round:
            return False
        passed = self._field.passed(waiting.stroke.target, mark.what)
        waiting.base = passed if waiting.base is None else waiting.base
        return passed >= waiting.base + mark.amount


def play(schedule: Schedule, folder: Path, calm: Left | None = None) -> Played:
    """Play it in that folder and judge it beside the undisturbed run; without one, as one."""
    began = time.monotonic()
    with laid_out(folder, schedule) as field:
        actor = Actor(field)
        actor.play()
        seconds, after_s = time.monotonic() - began, time.monotonic() - actor.last
        left = judge.left(field) if field.over else None
        findings = [*field.findings, *judge.faults(field, left, calm)]
        if findings:
            judge.keep(field, folder)
        return Played(left, findings, actor.struck, actor.missed, seconds, after_s)
