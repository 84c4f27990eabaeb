"""What a testbed tells in the end: tables for people and machines, pictures, its checks, and the sweep."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from edgeflock.common.command.units import decimals
from edgeflock.lab.compare import tables
from edgeflock.lab.findings.blocks import Block
from edgeflock.lab.testbed import drawing
from edgeflock.lab.testbed.breakdown import Breakdown, SeedGroup, by_method, hero, settings, totals
from edgeflock.lab.testbed.checks import CheckResult, HeldCell, checks, undisturbed
from edgeflock.lab.testbed.plan import TestbedPlan, describe
from edgeflock.lab.testbed.sweep import Spot, over, round_s, spots, turns, work
from edgeflock.server.console.onward import command

_DASH = "-"
_MB = 1e6
_PARTS = ("train", "fetch", "deliver", "wait")
_SERVER = ("select", "fold", "commit", "tests")


def tell(
    plan: TestbedPlan,
    out: Path,
    cells: Sequence[HeldCell],
    again: Mapping[str, str],
    links: Mapping[str, Sequence[HeldCell]],
) -> bool:
    """Print and write everything; return whether no check has failed."""
    rows = by_method([cell.breakdown for cell in cells])
    sweeps = {
        setting: spots([row for row in rows if row.setting == setting], plan) for setting in settings(rows)
    }
    results = [] if plan.devices.external else checks(cells, again, plan)
    blocks = [block for setting in settings(rows) for block in _blocks(setting, rows, cells, plan)]
    if not plan.devices.external:
        blocks += [
            _sweep_block(setting, found) for setting, found in sweeps.items() if found and found[0].minutes
        ]
    blocks += [_links_block(setting, links, rows, plan) for setting in settings(rows) if links]
    lines = [line for setting, found in sweeps.items() for line in _turning(setting, found, plan)]
    lacking = drawing.draw(out, rows, cells, {} if plan.devices.external else sweeps)
    _write(plan, out, blocks, results, lines, cells)
    click.echo("\n" + "\n\n".join(map(tables.as_text, blocks)) + "\n")
    for line in [
        *lines,
        *map(str, results),
        lacking,
        f"Written: testbed.md, cells.csv and pictures in {out}",
        f"next: {command('fl-lab', 'report', out)}",
    ]:
        if line:
            click.echo(line)
    return all(result.passed is not False for result in results)


def _write(
    plan: TestbedPlan,
    out: Path,
    blocks: Sequence[Block],
    results: Sequence[CheckResult],
    lines: Sequence[str],
    cells: Sequence[HeldCell],
) -> None:
    said = [f"{describe(plan)[:1].upper()}{describe(plan)[1:]}.", ""]
    said += [*map(tables.as_markdown, blocks), *([f"- {line}" for line in lines] + [""] if lines else [])]
    said += ["## Checks", "", *(f"- {result}" for result in results), ""] if results else []
    (out / "testbed.md").write_text("\n".join(said), "utf-8")
    tables.write_csv(out / "cells.csv", [_record(cell) for cell in cells])


def _record(cell: HeldCell) -> dict[str, str | float | int | None]:
    found = cell.breakdown
    sent = {way: sum(getattr(life, way).bytes for life in cell.lives) for way in ("down", "up")}
    books = totals(cell.history)
    return {
        "cell": cell.name,
        "method": found.method,
        "setting": found.setting,
        "seed": found.seed,
        "reached": str(found.reached).lower(),
        "rounds": found.rounds,
        "iterations": found.iterations,
        "seconds": found.seconds,
        **{f"{part}_s": seconds for part, seconds in found.parts.items()},
        "prepare_s": found.prepare_s,
        "tests_beside_s": found.tests_beside_s,
        "down_bytes": found.down,
        "up_bytes": found.up,
        "books_down_bytes": books.get("wire_bytes_down"),
        "books_up_bytes": books.get("wire_bytes_up"),
        "interface_down_bytes": sent["down"] if cell.lives else None,
        "interface_up_bytes": sent["up"] if cell.lives else None,
        "watched_whole": str(undisturbed(cell)).lower(),
        "cpu_s": found.cpu_s,
        "server_cpu_s": found.server_cpu_s,
        "wh": found.wh,
        "best_accuracy": found.best,
        "sha256": cell.digest,
    }


# ------------------------------------------------------------------------------------------------ tables


def _blocks(
    setting: str, rows: Sequence[SeedGroup], cells: Sequence[HeldCell], plan: TestbedPlan
) -> list[Block]:
    mine = [row for row in rows if row.setting == setting]
    target = max(plan.grid.targets, default=None)
    goal = f"to {plan.grid.figure.name} {target:g}" if target is not None else "of the whole run"
    at = f"{setting}: " if setting else ""
    best = hero([row.method for row in mine], plan.grid.baseline)
    return [
        _minutes(f"{at}minutes {goal}, and the seconds in them", mine, best),
        _costs(f"{at}costs {goal}", mine, cells),
    ]


def _minutes(title: str, rows: Sequence[SeedGroup], best: str) -> Block:
    """Return rounds and minutes, whose speed-up is told, and where they went."""
    heads = (
        *("", "rounds", "iterations", "minutes", f"/ {best}"),
        *(*_PARTS, *_SERVER, "S0 beside", "tests beside", "best", "runs"),
    )
    reference = next((row for row in rows if row.method == best), None)
    return Block(title, heads, tuple(_time_row(row, reference) for row in rows))


def _time_row(row: SeedGroup, reference: SeedGroup | None) -> tuple[str, ...]:
    shown = row.reached or list(row.cells)
    over = "" if row.reached else "> "
    return (
        row.method,
        over + _mean(shown, lambda cell: cell.rounds, 0),
        over + _mean(shown, lambda cell: cell.iterations, 0),
        over + _mean(shown, lambda cell: cell.seconds / 60, 2),
        _speed_up(row, reference),
        *(_mean(shown, _seconds_of(part), 1) for part in (*_PARTS, *_SERVER)),
        _mean(shown, lambda cell: cell.prepare_s, 1),
        _mean(shown, lambda cell: cell.tests_beside_s, 1),
        _mean(row.cells, lambda cell: cell.best, 4),
        f"{len(row.reached)}/{len(row.cells)}",
    )


def _seconds_of(part: str) -> Callable[[Breakdown], float]:
    return lambda cell: cell.parts[part]


def _speed_up(row: SeedGroup, reference: SeedGroup | None) -> str:
    """Return how many times as long as the reference's it took: known, or at least."""
    if reference is None or not reference.reached:
        return _DASH
    mine = statistics.fmean(cell.seconds for cell in (row.reached or row.cells))
    ratio = mine / statistics.fmean(cell.seconds for cell in reference.reached)
    return f"{'' if row.reached else '> '}{decimals(ratio, 2)}"


def _costs(title: str, rows: Sequence[SeedGroup], cells: Sequence[HeldCell]) -> Block:
    heads = (
        *("", "MB down", "MB up", "down / device", "up / device", "interfaces", "books, whole run"),
        *("CPU s", "server CPU s", "Wh, a model"),
    )
    return Block(title, heads, tuple(_cost_row(row, cells) for row in rows))


def _cost_row(row: SeedGroup, cells: Sequence[HeldCell]) -> tuple[str, ...]:
    shown = row.reached or list(row.cells)
    watched = [cell for cell in cells if cell.breakdown in row.cells and undisturbed(cell)]
    there = [(life.down.bytes + life.up.bytes) / _MB for cell in watched for life in cell.lives]
    books = [totals(cell.history) for cell in watched]
    held = [(one.get("wire_bytes_down", 0.0) + one.get("wire_bytes_up", 0.0)) / _MB for one in books]
    return (
        row.method,
        _mean(shown, lambda cell: cell.down / _MB, 1),
        _mean(shown, lambda cell: cell.up / _MB, 1),
        _mean(shown, lambda cell: cell.down / cell.devices / _MB, 2),
        _mean(shown, lambda cell: cell.up / cell.devices / _MB, 2),
        decimals(statistics.fmean(there), 1) if there else _DASH,
        decimals(statistics.fmean(held), 1) if held else _DASH,
        _mean(shown, lambda cell: cell.cpu_s, 0),
        _mean(shown, lambda cell: cell.server_cpu_s, 1),
        _mean(shown, lambda cell: cell.wh, 2),
    )


def _mean(cells: Sequence[Breakdown], of: Callable[[Breakdown], float | None], digits: int) -> str:
    known = [value for cell in cells if (value := of(cell)) is not None]
    if not known:
        return _DASH
    text = f"{statistics.fmean(known):.{digits}f}"
    return text if len(known) < 2 else f"{text} ± {statistics.stdev(known):.{digits}f}"


# ------------------------------------------------------------------------------------------------ the sweep


def _sweep_block(setting: str, found: Sequence[Spot]) -> Block:
    methods = list(found[0].minutes)
    rows = tuple(
        (
            f"{spot.link}, x{spot.speed:g}",
            *(decimals(spot.minutes[method], 2) for method in methods),
            spot.order[0],
        )
        for spot in found
    )
    at = f"{setting}: " if setting else ""
    return Block(f"{at}minutes on other links and devices, reckoned", ("", *methods, "fastest"), rows)


def _links_block(
    setting: str, links: Mapping[str, Sequence[HeldCell]], rows: Sequence[SeedGroup], plan: TestbedPlan
) -> Block:
    """Return how long rounds lasted on each link, beside what whole runs make expect."""
    works = {row.method: work(row.reached or row.cells) for row in rows if row.setting == setting}
    lines = []
    for link, cells in links.items():
        lasted = {
            one.breakdown.method: one.breakdown.round_s for one in cells if one.breakdown.setting == setting
        }
        cells_of = [
            f"{lasted[method]:.2f} ({round_s(works[method], over(plan, link)):.2f})"
            if method in lasted
            else _DASH
            for method in works
        ]
        lines.append((link, *cells_of))
    at = f"{setting}: " if setting else ""
    title = f"{at}seconds of a round, held for {plan.sweep.held} on each link (and reckoned)"
    return Block(title, ("", *works), tuple(lines))


def _turning(setting: str, found: Sequence[Spot], plan: TestbedPlan) -> list[str]:
    if plan.devices.external or not found or len(found[0].minutes) < 2:
        return []
    at = f"{setting}: " if setting else ""
    lines = turns(found, plan.sweep)
    return [f"{at}{line}" for line in lines] or [
        f"{at}the order of the methods is the same on every link and device"
    ]
