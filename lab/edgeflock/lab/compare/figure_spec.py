"""Which pictures a comparison has beside the usual one: [[figure]] tables and --figure, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeflock.common.command.options import unknown
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.scores import ACCURACY
from edgeflock.lab.findings.figures import check_name
from edgeflock.lab.findings.outcome import COSTS
from edgeflock.lab.plots.curves import EVERY

LINES, SWEPT, BOXES, TIMES = "lines", "swept", "boxes", "times"
_USUAL_Y = {LINES: "{0}", SWEPT: "final_{0}", BOXES: "last_10_{0}", TIMES: "rounds"}  # of the figure
_METRIC = re.compile(r"[A-Za-z]\w*")
_FILE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_AXES = {axis.cost: axis for axis in EVERY}
_USUAL_X = ("rounds", "bytes", "seconds")


@dataclass(frozen=True)
class FigureSpec:
    """One picture: what is drawn, of what, against what."""

    kind: str
    y: str  # lines: what models are judged by, or what methods say; else a figure by name, of times a cost
    x: tuple[str, ...] = _USUAL_X  # of lines: costs, a panel for each
    over: str = ""  # swept: the axis of the grid below it; boxes, times: that by which they are grouped
    smooth: float = 0.0  # of lines: what the past counts, 0 is nothing
    target: float | None = None  # of costs; None: the highest that any run has reached
    model: str = ""  # that was tested; empty: the one that counts
    file: str = ""  # its name without an end; empty: made of the others

    @property
    def stem(self) -> str:
        parts = filter(None, (self.kind, self.y, self.over, self.model))
        return self.file or re.sub(r"[^\w.-]+", "-", "-".join(parts))


def read_figures(
    tables: Sequence[Mapping[str, Any]], axes: Collection[str], where: str, figure: str = ACCURACY.name
) -> tuple[FigureSpec, ...]:
    """Return the pictures of [[figure]] tables, of what models are judged by unless they say another.

    Raises UsageError with a sentence that names the key.
    """
    numbered = enumerate(tables, 1)
    made = [_spec(table, axes, f"[[figure]] {number} of {where}", figure) for number, table in numbered]
    stems = [spec.stem for spec in made]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise UsageError(f"two figures of {where} are called {twice}: give one a file=NAME")
    return tuple(made)


def table_of(words: str) -> dict[str, Any]:
    """Return the [[figure]] table of a line of words: its kind, then `key=value`."""
    kind, *rest = words.split() or [""]
    table: dict[str, Any] = {"kind": kind}
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadValue(f"a word of --figure {words!r}", word, "its kind, then KEY=VALUE")
        table[key] = _number(value) if key in ("smooth", "target") else value
    return table


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _spec(table: Mapping[str, Any], axes: Collection[str], where: str, figure: str) -> FigureSpec:
    known = FigureSpec.__dataclass_fields__
    for key in table:
        if key not in known:
            raise unknown(f"key in {where}", key, known)
    kind = table.get("kind", "")
    if kind not in _USUAL_Y:
        raise BadValue(f"kind in {where}", kind, ", ".join(_USUAL_Y))
    return FigureSpec(
        kind=kind,
        y=_y(table.get("y", _USUAL_Y[kind].format(figure)), kind, f"y in {where}"),
        x=_x(table.get("x"), kind, f"x in {where}"),
        over=_over(table.get("over", ""), kind, axes, f"over in {where}"),
        smooth=_share(table.get("smooth", 0.0), f"smooth in {where}", "a number from 0 to below 1", 1.0),
        target=_target(table.get("target"), f"target in {where}"),
        model=_text(table.get("model", ""), f"model in {where}", _FILE),
        file=_text(table.get("file", ""), f"file in {where}", _FILE),
    )


def _y(value: Any, kind: str, label: str) -> str:
    text = str(value)
    if kind == LINES:
        if not _METRIC.fullmatch(text):
            raise BadValue(
                label,
                value,
                "accuracy, loss, another metric of the task, or what a method says of its rounds",
            )
        return text
    if kind == TIMES and text not in COSTS:
        raise BadValue(label, value, ", ".join(COSTS))
    return check_name(text, label)


def _x(value: Any, kind: str, label: str) -> tuple[str, ...]:
    if value is None:
        return _USUAL_X
    names = value.split(",") if isinstance(value, str) else value
    if kind != LINES:
        raise BadValue(label, value, f"nothing: of {LINES} alone")
    if not isinstance(names, list | tuple) or not names or any(name not in _AXES for name in names):
        raise BadValue(label, value, f"one or more of {', '.join(_AXES)}")
    return tuple(names)


def _over(value: Any, kind: str, axes: Collection[str], label: str) -> str:
    if value not in axes and not (value == "" and kind != SWEPT):
        raise BadValue(label, value, f"one of the grid's axes: {', '.join(axes) or 'none'}")
    return str(value)


def _share(value: Any, label: str, allowed: str, below: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < below:
        raise BadValue(label, value, allowed)
    return float(value)


def _target(value: Any, label: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise BadValue(label, value, "a number")
    return float(value)


def _text(value: Any, label: str, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or (value and not form.fullmatch(value)):
        raise BadValue(label, value, "letters, digits and . _ -")
    return value
