"""What a report is called and how it begins: method, data, clients, result; what a comparison shares."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from edgeflock import methods
from edgeflock.common.command.kinds import ends
from edgeflock.common.command.units import UNKNOWN, amount, counted, decimal
from edgeflock.common.scores import ACCURACY
from edgeflock.lab.findings.groups import Group
from edgeflock.lab.findings.results import CellResult
from edgeflock.lab.findings.verdict import final
from edgeflock.lab.grid.grid import Grid
from edgeflock.lab.grid.options import METHOD, SEED
from edgeflock.lab.history import COMPLETED, History
from edgeflock.lab.report.key_figures import last_test, measured
from edgeflock.methods.kit import registry
from edgeflock.server.config import ServerConfig

_NAMED = 4  # methods that a title names


def title(history: History) -> str:
    """Return `FedTrip on digits, 10 clients, dirichlet:0.5: 0.9193 after 20 rounds`."""
    config = history.config
    what = [f"{proper_name(config.method)} on {_data(config)}", _clients(config), *_partition(config)]
    return f"{', '.join(what)}: {_result(history)}"


def proper_name(method: str) -> str:
    """Return a method's name as its paper writes it, which is how its file begins."""
    if method not in registry.names():
        return method  # of a plug-in: to read of a run loads no foreign code
    text = importlib.import_module(f"{methods.__name__}.{method}").__doc__ or ""
    name = text.partition(":")[0]
    return name if name.lower() == method else method


def _data(config: ServerConfig) -> str:
    return config.dataset or "data of the clients' own"


def _clients(config: ServerConfig) -> str:
    return f"the union of {config.clients} shards" if config.central else counted(config.clients, "client")


def _partition(config: ServerConfig) -> list[str]:
    return [config.partition] if config.dataset else []


def _result(history: History) -> str:
    points, done = measured(history), len(history.training)
    name = "" if history.figure == ACCURACY else f"{history.figure.name} "
    tested = f"in round {points[-1].round}, " if last_test(history, points) else ""
    value = f"{name}{decimal(points[-1].evaluation.value)} {tested}" if points else ""
    ending = history.ending
    if ending is None:
        return f"{value}after {done} of {counted(history.config.rounds, 'round')}, not finished"
    how = "" if ending.kind == COMPLETED else f", {ending.kind}"
    return f"{value}after {counted(done, 'round')}{how}"


def sentence(history: History) -> str:
    """Return what was run, in words."""
    config = history.config
    data = f"{config.dataset}, {config.partition}" if config.dataset else _data(config)
    return (
        f"{config.method} with {_who(config)}; {config.model} on {data}; {_work(history)} per round in "
        f"{_steps(config)}; seed {config.seed}{_codecs(config)}{_augmented(config)}{_tuned(config)}"
        f"{_begun(config)}"
    )


def _who(config: ServerConfig) -> str:
    least, most = ends(config.cohort)
    if not config.central and 0 < least < config.clients:
        asked = f"{most}" if least == most else f"{least} to {most}"
        return f"{asked} of {config.clients} clients per round"
    return _clients(config)


def _steps(config: ServerConfig) -> str:
    lr = UNKNOWN if config.lr is None else f"{config.lr:g}"
    rates = "" if config.schedule == "constant" else f", {config.schedule}"
    steps = "" if config.client_optimizer == "sgd" else f", steps of {config.client_optimizer}"
    return f"batches of {amount('count', config.batch_size)}, learning rate {lr}{rates}{steps}"


def _codecs(config: ServerConfig) -> str:
    return "" if config.codec == "identity" else f", updates as {config.codec}"


def _augmented(config: ServerConfig) -> str:
    return "" if config.augment == "none" else f", pictures augmented by {config.augment}"


def _tuned(config: ServerConfig) -> str:
    """Return what is trained of the model, where it is not all of it by everybody together."""
    parts = {
        "of the model {} is trained": config.train,
        "{} beside frozen layers": config.adapter,
        "{} kept by every client": config.keep_local,
    }
    return "".join(f", {words.format(text)}" for words, text in parts.items() if text)


def _begun(config: ServerConfig) -> str:
    return f", from weights of SHA-256 {config.init_sha256}" if config.init_sha256 else ""


def _work(history: History) -> str:
    if any("tau" in round.metrics for round in history.training):
        return "local steps as the method chooses them"
    return _local(history.config)


def _local(config: ServerConfig) -> str:
    count, what = (config.epochs, "epoch") if config.steps is None else (config.steps, "step")
    return counted(count or 0, what)


# ------------------------------------------------------------------------------------------- a comparison


def of_comparison(found: Sequence[Group], grid: Grid) -> str:
    """Return methods, data, clients, seeds, and the means where there is one setting with few methods."""
    names = grid.axes.get(METHOD, (grid.cells[0].method,))
    who = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} methods"
    where = _same(grid, (_data, _clients, lambda config: "".join(_partition(config))))
    seeds = counted(len(grid.axes.get(SEED, ("",))), "seed")
    what = f"{who} on {', '.join([*where, seeds])}" if where else f"{who}, {seeds}"
    last = final(grid.figure)
    means = [(group.spreads[last].mean, group.name) for group in found if last in group.spreads]
    if not means or len(found) > _NAMED:
        return what
    told = ", ".join(f"{name} {mean:.4f}" for mean, name in sorted(means, reverse=grid.figure.higher))
    return f"{', '.join([*where, seeds])}: {told}" if where else f"{what}: {told}"


def of_all_cells(grid: Grid, results: Sequence[CellResult]) -> str:
    """Return what all runs have in common, and how many of them are finished."""
    parts = (
        lambda config: config.model,
        _who,
        lambda config: counted(config.rounds, "round"),
        lambda config: f"{_local(config)} per round",
        _steps,
    )
    done = sum(result.outcome is not None for result in results)
    runs = (
        f"{done} of {counted(len(results), 'run')} finished" if done < len(results) else counted(done, "run")
    )
    return "; ".join([*_same(grid, parts), runs])


def _same(grid: Grid, parts: Sequence[Callable[[ServerConfig], str]]) -> list[str]:
    """Return the words that are the same for all cells."""
    told = [{part(cell.config) for cell in grid.cells} for part in parts]
    return [words for found in told if len(found) == 1 for words in found if words]
