"""What a table or a claim is about: a figure of a run by its name, up to a target, of a model. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgeflock.common.errors import BadValue
from edgeflock.lab.findings.bounded import Bounded, exactly
from edgeflock.lab.findings.figures import check_name, figure
from edgeflock.lab.findings.outcome import COSTS
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid

_HELD = "classes_held"
COVERED = "covered"  # the share of the classes that some client holds: what nobody holds, nobody can learn
_SHARES = ("accuracy", "f1", "auc", "iou", "dice")  # of the tasks' metrics
_LESS = ("loss", "mae", "rmse", "perplexity", "error")
_FORM = re.compile(r"(?P<name>\w+)(?: to (?P<target>[\d.]+)| (?P<whole>in all))?(?: of (?P<model>[\w-]+))?")
_WORDS = "a figure such as final_accuracy, rounds to 0.85, bytes in all, final_accuracy of representation"


@dataclass(frozen=True)
class QuantityName:
    """A figure as files name it."""

    text: str
    name: str
    target: float | None = None  # None: that of the cell
    whole: bool = False  # a cost of the whole run
    model: str = ""  # empty: the one that counts

    @property
    def is_cost(self) -> bool:
        """Whether it is a cost: less is better, and it is compared by ratios."""
        return self.name in COSTS

    @property
    def is_share(self) -> bool:
        """Whether it is said in percent."""
        return any(word in self.name for word in _SHARES) or self.name == COVERED

    @property
    def less_is_better(self) -> bool:
        return self.is_cost or any(word in self.name for word in _LESS)

    def of(self, result: CellResult, grid: Grid) -> Bounded | None:
        """Return what a run came to, shares in percent; None if that is not known."""
        if self.name == COVERED:
            return covered(result)
        found = figure(result, self.name, self._target(result, grid), self.model)
        return percent(found) if found is not None and self.is_share else found

    def _target(self, result: CellResult, grid: Grid) -> float | None:
        if not self.is_cost or self.whole or self.target is not None:
            return self.target
        return min(grid.targets_of(result.cell), default=None)


def read_quantity(text: str, label: str) -> QuantityName:
    """Return a figure by what a file calls it; raises BadValue with a sentence."""
    form = _FORM.fullmatch(text) if isinstance(text, str) else None
    if form is None:
        raise BadValue(label, text, _WORDS)
    name = form["name"]
    if name != COVERED:
        check_name(name, label)
    if (form["target"] or form["whole"]) and name not in COSTS:
        raise BadValue(label, text, f"a target with {', '.join(COSTS)} alone")
    target = float(form["target"]) if form["target"] else None
    return QuantityName(text, name, target, bool(form["whole"]), form["model"] or "")


def percent(found: Bounded) -> Bounded:
    return Bounded(100 * found.low, 100 * found.high)


def covered(result: CellResult) -> Bounded | None:
    """Return the share of the classes of which some client has a sample, in percent, as its run said it."""
    events = result.history.events if result.history else ()
    for event in events:
        if event.name == _HELD and (classes := event.number("classes")):
            return exactly(100 * float(event.number("held") or 0) / float(classes))
    return None
