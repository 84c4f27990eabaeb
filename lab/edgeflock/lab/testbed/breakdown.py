"""What a cell took until it reached its target, in parts: minutes, bytes, CPU, energy. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeflock.lab.grid.grid import Cell
from edgeflock.lab.history import ITERATIONS, History, RoundHistory
from edgeflock.server.costs.catalogue import together
from edgeflock.server.journal.reader import Numbers

# A stack of these is the time of the rounds: the mean device's way, the server's own, and the rest.
DEVICE = ("fetch", "train", "deliver")
SERVER = ("select", "fold", "commit", "tests")
WAIT = "wait"  # of the mean device: for others, and for what a server trains
_JOULES_IN_WH = 3600.0


@dataclass(frozen=True)
class Breakdown:
    """One cell up to its target, or as far as it came."""

    method: str
    setting: str  # the labels of all other axes but the seed
    seed: str
    reached: bool  # also where there is no target
    rounds: int
    iterations: float  # of a device
    seconds: float
    parts: Mapping[str, float]  # seconds, as in DEVICE, SERVER and WAIT
    prepare_s: float  # S0 of methods that train on the server, beside the devices
    tests_beside_s: float  # tests beside the next round
    down: float  # bytes on the wire of all devices, estimated by the books
    up: float
    devices: int
    cpu_s: float  # of all devices
    server_cpu_s: float
    energy_j: float | None
    best: float | None  # accuracy

    @property
    def wh(self) -> float | None:
        return None if self.energy_j is None else self.energy_j / _JOULES_IN_WH

    @property
    def round_s(self) -> float:
        return self.seconds / self.rounds if self.rounds else 0.0


def breakdown(cell: Cell, history: History, target: float | None, measure: str) -> Breakdown:
    """Return what a cell took until an accuracy was reached; in all if it was not, or none is asked for."""
    point = None if target is None else history.reached(target, measure)
    training = history.training
    kept = [round for round in training if point is None or round.number <= point.round]
    costs, values = together(round.costs for round in kept), together(round.values for round in kept)
    seconds = sum(round.seconds for round in kept)
    found = history.curve(measure)
    return Breakdown(
        method=cell.method,
        setting=setting_of(cell),
        seed=cell.labels.get("seed", ""),
        reached=target is None or point is not None,
        rounds=len(kept),
        iterations=kept[-1].spent.get(ITERATIONS, 0.0) if kept else 0.0,
        seconds=seconds,
        parts=parts(kept, seconds),
        prepare_s=values.get("prepare_busy", 0.0),
        tests_beside_s=values.get("evaluate_busy", 0.0),
        down=costs.get("wire_bytes_down", 0.0),
        up=costs.get("wire_bytes_up", 0.0),
        devices=cell.config.clients,
        cpu_s=costs.get("cpu_s", 0.0),
        server_cpu_s=values.get("server_cpu_s", 0.0),
        energy_j=costs.get("energy_j"),
        best=history.figure.best([one.evaluation.value for one in found]),
    )


def setting_of(cell: Cell) -> str:
    """Return what is set beside the method and the seed."""
    return " ".join(f"{axis}={label}" for axis, label in cell.group.items() if axis != "method")


def parts(kept: Sequence[RoundHistory], seconds: float) -> dict[str, float]:
    """Return where the time of rounds went, each second once: they add up to it."""
    found: dict[str, float] = {name: 0.0 for name in (*DEVICE, *SERVER)}
    for round in kept:
        members = max(1, sum(round.verdicts.values()))
        for name in DEVICE:
            found[name] += round.costs.get(f"{name}_s", 0.0) / members
        for name in SERVER:
            found[name] += round.values.get("evaluate_s" if name == "tests" else f"{name}_s", 0.0)
    found[WAIT] = max(0.0, seconds - sum(found.values()))
    return found


# ------------------------------------------------------------------------------------------- over seeds


@dataclass(frozen=True)
class SeedGroup:
    """The cells of one method in one setting: they differ in their seed alone."""

    method: str
    setting: str
    cells: Sequence[Breakdown]

    @property
    def reached(self) -> list[Breakdown]:
        """Those that came to the target."""
        return [cell for cell in self.cells if cell.reached]


def by_method(found: Sequence[Breakdown]) -> list[SeedGroup]:
    """Return a row for every method and setting, in the order in which they were first met."""
    rows: dict[tuple[str, str], list[Breakdown]] = {}
    for one in found:
        rows.setdefault((one.setting, one.method), []).append(one)
    return [SeedGroup(method, setting, cells) for (setting, method), cells in rows.items()]


def settings(rows: Sequence[SeedGroup]) -> list[str]:
    return list(dict.fromkeys(row.setting for row in rows))


def hero(methods: Sequence[str], baseline: Mapping[str, str]) -> str:
    """Return the method whose speed-up over the others is told."""
    wanted = baseline.get("method", "pfedmo")
    return wanted if wanted in methods else methods[0] if methods else ""


def totals(history: History) -> Numbers:
    """Return what the books have of a whole run, rounds that were given up and the last one included."""
    return together(round.costs for round in (*history.rounds, *history.others))
