"""What the tables of a grid cannot say, in sentences: what is missing or shared, what is a model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from edgeflock.lab.findings import comparable
from edgeflock.lab.findings.outcome import RunOutcome, overlap
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.grid.grid import Grid
from edgeflock.methods.kit import registry
from edgeflock.server.costs.catalogue import MODEL_J

_READING = (
    "± is the standard deviation over seeds. The interval of a median or a ratio ends at the least and the "
    "largest of up to 8 seeds: 3 are right in 75% of cases, 5 in 94%. Seconds are those of the server's "
    "rounds, without the start of processes; bytes are payload, both ways."
)


def notes(results: Sequence[CellResult], grid: Grid) -> list[str]:
    """Return all that there is to say."""
    return [
        *_silent(results),
        *_missed(results, grid),
        *_apart(results, grid),
        *_shared(results),
        *comparable.tests(results),
        *_least(results),
        *comparable.held(results),
        *comparable.cautions(results),
        *_by_servers(results),
        *_energy(results),
        _READING,
    ]


def urgent(results: Sequence[CellResult], grid: Grid) -> list[str]:
    """Return what must be said where there is room for little."""
    return [*_silent(results), *_apart(results, grid), *_shared(results)]


def _apart(results: Sequence[CellResult], grid: Grid) -> list[str]:
    """Say in what runs differ that nobody asked for."""
    return [
        *comparable.diverged(results),
        *comparable.ended(results),
        *comparable.lives(results),
        *comparable.defaults(results, grid),
        *comparable.measures(results),
        *comparable.members(results),
    ]


def _silent(results: Sequence[CellResult]) -> list[str]:
    """Say of which methods the model that counts was not tested, and which was."""
    silent = {r.cell.method: (r.measure, r.outcome) for r in results if r.outcome and r.outcome.final is None}
    return [
        f"{name} has no {found.figure.name} of {measure!r}, {_why(found)}."
        for name, (measure, found) in silent.items()
    ]


def _why(found: RunOutcome) -> str:
    if found.models:
        return f"--measure can be {', '.join(found.models)}"
    return "no model was evaluated (eval_every)" if found.total["rounds"] else "no round was committed"


def _missed(results: Sequence[CellResult], grid: Grid) -> list[str]:
    """Say where a mean is one of those runs alone that reached a target."""
    found: list[str] = []
    for target in grid.targets:
        asked = [result for result in results if target in grid.targets_of(result.cell)]
        reached = [bool(result.outcome and result.outcome.reached.get(target)) for result in asked]
        if not any(reached):
            found.append(f"No run reached {target:g}.")
        elif not all(reached):
            found.append(
                f"{reached.count(False)} of {len(reached)} runs did not reach {target:g}: "
                "each counts as more (>) than what it had."
            )
    return found


def _shared(results: Sequence[CellResult]) -> list[str]:
    """Say it if cells have disturbed each other; their journals know when they ran."""
    ran = [life for result in results if result.outcome for life in result.outcome.lives]
    return (
        ["Some cells ran at the same time and shared the machine: seconds are longer for it."]
        if overlap(ran)
        else []
    )


def _least(results: Sequence[CellResult]) -> list[str]:
    """Say where bytes are a lower bound."""
    cut = (r.cell.method for r in results if r.history and r.history.total.get("at_least"))
    names = list(dict.fromkeys(cut))
    words = "bytes are these or more: a server was killed in mid-round"
    return [f"Of some runs of {', '.join(names)} {words}."] if names else []


def _by_servers(results: Sequence[CellResult]) -> list[str]:
    """Say whose operations are not all in the tables."""
    names = dict.fromkeys(r.cell.method for r in results if registry.load(r.cell.config.method).public_data)
    if not names:
        return []
    verb = "train" if len(names) > 1 else "trains"
    if all(r.outcome is None or r.outcome.total.get("all_flops") is not None for r in results):
        return [
            f"FLOPs are the clients', beside them those with the server's: {', '.join(names)} {verb} there."
        ]
    return [f"FLOPs are the clients': {', '.join(names)} {verb} on the server, too, which is not in them."]


def _energy(results: Sequence[CellResult]) -> list[str]:
    """Say where energy comes from if no sensor tells it, or why its column is not there."""
    known = {
        name for r in results if r.outcome for name, value in r.outcome.total.items() if value is not None
    }
    sources = {name for r in results if r.history for name in r.history.energy_sources}
    if MODEL_J.name in sources:
        partly = " in part" if len(sources) > 1 else ""
        return [f"Energy is{partly} a model, not measured: seconds times the watts that clients state."]
    if not known or "energy_j" in known:
        return []
    return ["Energy is not known: no client has a sensor that can be read, and none was told its watts."]
