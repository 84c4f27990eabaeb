"""The verdict of a comparison in words: who is alike, who is apart, who reached the target. Pure.

It says no more than the 95 % t intervals of the paired differences in the tables do. Alike is what such an
interval bounds closely; what it does not bound is left open, and one seed decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgeflock.common.command.units import counted, signed
from edgeflock.common.scores import ACCURACY, Metric
from edgeflock.lab.findings.groups import Figure, Group, groups
from edgeflock.lab.findings.paired import Difference
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid, shown_name
from edgeflock.lab.grid.options import METHOD, SEED
from edgeflock.lab.grid.rows import is_own

_SAME = 0.005  # of a share: an interval within this is of no consequence, wherever 0 is
_NAMED = 6  # so many names stand in a list at most
_CLOSE = 0.02  # around 0: an interval within this is called alike


@dataclass(frozen=True)
class SettingVerdict:
    """The words for one setting of the other axes: `partition=iid`, or nothing if there is one setting."""

    setting: str
    words: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.words}" if self.setting else self.words


def verdicts(results: Sequence[CellResult], grid: Grid) -> list[SettingVerdict]:
    """Return the verdict of every setting, in the order of the grid."""
    against = reference(grid)
    settings: dict[tuple[tuple[str, str], ...], list[Group]] = {}
    for group in groups(results, replace(grid, baseline=against)):
        rest = tuple((axis, label) for axis, label in group.labels.items() if not _is_of(axis, against))
        settings.setdefault(rest, []).append(group)
    return [
        SettingVerdict(
            _labels(dict(setting)) if len(settings) > 1 else "",
            "; ".join(_parts(found, against, _asked(found, grid.targets), grid.figure)),
        )
        for setting, found in settings.items()
    ]


def _asked(found: Sequence[Group], targets: Sequence[float]) -> list[float]:
    """Return the targets of these groups: other cases may have others."""
    known = any(group.values for group in found)
    return [one for one in targets if not known or any((one, "rounds") in group.values for group in found)]


def reference(grid: Grid) -> Mapping[str, str]:
    """Return what the others are held against: the baseline, else the first method, or value of an axis."""
    if grid.baseline:
        return grid.baseline
    several = [axis for axis, labels in grid.axes.items() if axis != SEED and len(labels) > 1]
    axis = METHOD if METHOD in several else next(iter(several), None)
    return {} if axis is None else {axis: grid.axes[axis][0]}


def _parts(
    found: Sequence[Group], against: Mapping[str, str], targets: Sequence[float], figure: Metric
) -> Iterator[str]:
    mine = {
        id(group): {axis: group.labels[axis] for axis in group.labels if _is_of(axis, against)}
        for group in found
    }
    names = {one: _labels(labels) for one, labels in mine.items()}
    known = [(names[id(group)], group) for group in found]
    base = next(name for name, group in known if against.items() <= group.labels.items())
    yield from _judged(known, base, figure)
    yield from _reached(known, targets)
    yield from _missing(known)


def _is_of(axis: str, against: Mapping[str, str]) -> bool:
    """Whether an axis tells the groups of a setting apart: it is compared, or an option of one method."""
    return axis in against or is_own(axis)


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels as people call them: a method by its name alone."""
    if METHOD in labels:
        return shown_name(labels[METHOD], labels)
    return " ".join(f"{axis}={label}" for axis, label in labels.items()) or "all"


# --------------------------------------------------------------------------------------- how good models are


def final(figure: Metric) -> Figure:
    """Return the name of what runs are compared by."""
    return None, f"final_{figure.name}"


def _judged(found: Sequence[tuple[str, Group]], base: str, figure: Metric) -> Iterator[str]:
    """Yield how the final values compare with that of the base, those that are told apart last."""
    last = final(figure)
    apart = {name: group.differences[last] for name, group in found if last in group.differences}
    if len(found) == 1:
        yield from _alone(*found[0], figure)
    elif not apart:
        several = "accuracies" if figure == ACCURACY else f"values of {figure.name}"
        yield f"no final {several} of the same seed stand beside each other: nothing is held against {base}"
    elif max(paired.count for paired in apart.values()) < 2:
        yield f"one seed decides nothing: final {figure.name} {_means(found, figure)}"
    else:
        yield from _told(apart, base, figure)


def _alone(name: str, group: Group, figure: Metric) -> Iterator[str]:
    if final(figure) in group.spreads:
        yield f"{name} ends with {figure.name} {group.spreads[final(figure)].mean:.4f}"


def _means(found: Sequence[tuple[str, Group]], figure: Metric) -> str:
    """Return the best means in words."""
    last = final(figure)
    known = sorted(
        ((group.spreads[last].mean, name) for name, group in found if last in group.spreads),
        reverse=figure.higher,
    )
    shown = ", ".join(f"{name} {mean:.4f}" for mean, name in known[:4])
    return shown + (f", {len(known) - 4} more below" if len(known) > 4 else "")


def _told(apart: Mapping[str, Difference], base: str, figure: Metric) -> Iterator[str]:
    """Yield who is alike, above, below, and who cannot be told apart from the base.

    What is no share is alike only where it is the same: how much of it matters nobody can say.
    """
    pairs = {name: paired for name, paired in apart.items() if paired.count > 1}
    alike = {name: paired for name, paired in pairs.items() if _is_alike(paired, figure)}
    rest = {name: paired for name, paired in pairs.items() if name not in alike}
    seeds = counted(max(paired.count for paired in pairs.values()), "seed")
    if alike:
        within = max(_reach(paired) for paired in alike.values())
        names = _listed([base, *alike])
        name = figure.name
        how = f"final {name} within {within:.3f}" if within else f"the same final {name} in every run"
        yield f"{names} are alike, as far as {seeds} tell: {how}"
    for words, side in (("above", 1), ("below", -1)):
        if mine := [_with_interval(*entry) for entry in rest.items() if _side(entry[1]) == side]:
            better = "" if figure.higher else ", where less is better"
            yield f"{_listed(mine)} {'is' if len(mine) == 1 else 'are'} {words} {base}{_in(figure)}{better}"
    if open_ := [_with_interval(*entry) for entry in rest.items() if not _side(entry[1])]:
        yield f"{seeds} cannot tell {_listed(open_)} from {base}{_in(figure)}"


def _in(figure: Metric) -> str:
    """Return by what runs are held against each other, where it is not what everybody expects."""
    return "" if figure == ACCURACY else f" in {figure.name}"


def _with_interval(name: str, paired: Difference) -> str:
    low, high = paired.low or 0.0, paired.high or 0.0
    return f"{name} ({signed(paired.mean, 3)} [{signed(low, 3)}, {signed(high, 3)}])"


def _is_alike(paired: Difference, figure: Metric) -> bool:
    if not figure.share:
        return not _reach(paired)
    return _reach(paired) <= (_SAME if _side(paired) else _CLOSE)


def _reach(paired: Difference) -> float:
    """Return how far from 0 the difference may be."""
    return max(abs(paired.low or 0.0), abs(paired.high or 0.0))


def _side(paired: Difference) -> int:
    """Return 1 if it is above 0, -1 if below, 0 if it may be either."""
    low, high = paired.low or 0.0, paired.high or 0.0
    return 1 if low > 0 else -1 if high < 0 else 0


# ------------------------------------------------------------------------------------------------- targets


def _reached(found: Sequence[tuple[str, Group]], targets: Sequence[float]) -> Iterator[str]:
    """Yield who came to the highest target that anybody reached, and which targets nobody did."""
    counts = {
        target: [(name, _count(group, target), group.cells) for name, group in found] for target in targets
    }
    met = [target for target in targets if any(count for _, count, _ in counts[target])]
    if met:
        yield _came(met[-1], counts[met[-1]])
    if missed := [f"{target:g}" for target in targets if target not in met]:
        yield f"no run reached {_listed(missed, 'or')}"


def _count(group: Group, target: float) -> int:
    return len(group.values.get((target, "rounds"), {}))


def _came(target: float, counts: Sequence[tuple[str, int, int]]) -> str:
    """Return how many runs of each reached a target, those of whom the most did first."""
    if all(count == cells for _, count, cells in counts):
        return f"every run reached {target:g}"
    together: dict[tuple[int, int], list[str]] = {}
    for name, count, cells in counts:
        together.setdefault((count, cells), []).append(name)
    told = [
        f"{_listed(names)}{f' reached {target:g}' if not place else ''} in "
        + (f"{count} of {cells}" if count else "none")
        for place, ((count, cells), names) in enumerate(sorted(together.items(), reverse=True))
    ]
    return ", ".join(told)


def _missing(found: Sequence[tuple[str, Group]]) -> Iterator[str]:
    """Yield of whom runs are missing: failed, or not held yet."""
    lacking = [(name, group.cells - _runs(group), group.cells) for name, group in found]
    told = [f"{count} of {cells} of {name}" for name, count, cells in lacking if count]
    if told:
        yield f"without a result: {_listed(told)}"


def _runs(group: Group) -> int:
    return len(group.values.get((None, "rounds"), {}))


def _listed(names: Sequence[str], last: str = "and") -> str:
    """Return `a`, `a and b`, `a, b and c`; of many the first, and how many others."""
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
