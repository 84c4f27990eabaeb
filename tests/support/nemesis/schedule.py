"""A schedule: a run's settings and what strikes it, when and for how long; a pure value made from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

IDS = ("c0", "c1", "c2", "c3")
ROUNDS = 12
EVERY = (  # no deadline that a fault may outlast: every round counts everybody whom it asks
    f"--clients={len(IDS)}",
    f"--rounds={ROUNDS}",
    "--seed=11",
    "--partition=dirichlet:0.5",
    "--model=mlp",
    "--model-arg=hidden=[256,128]",
    "--lr=0.1",
    "--batch-size=64",
    "--eval-every=3",
    "--grace=10m",
    "--linger=30",  # longer than what strikes at the end
)
MODEL_BYTES = 200_000  # roughly, without a codec
SIMULATED = ("--clock=simulated", "--budget=time=4s")  # what is measured is no twice the same
HOSTS = (
    ("c0,c1,c2,c3",),
    ("c0,c1", "c2,c3"),
    ("c0", "c1", "c2,c3"),
    IDS,
)


@dataclass(frozen=True)
class Setting:
    """A run whose bits are the same every time."""

    flags: tuple[str, ...]  # of the server, after those of every run
    keeps: bool = False  # its clients keep something from round to round


def _setting(method: str, *flags: str, keeps: bool = False) -> Setting:
    return Setting((f"--method={method}", *flags), keeps or any("topk" in flag for flag in flags))


SETTINGS = {
    "fedavg": _setting("fedavg"),
    "fedavg, some": _setting("fedavg", "--cohort=3", "--codec=int8", "--codec-down=bf16"),
    "fedavg, topk": _setting("fedavg", "--codec=topk:0.1+zstd"),
    "scaffold": _setting("scaffold", keeps=True),
    "scaffold, fp16": _setting("scaffold", "--cohort=3", "--codec=fp16", keeps=True),
    "scaffold, topk": _setting("scaffold", "--codec=topk:0.2", keeps=True),
    "feddyn": _setting("feddyn", "--cohort=3", keeps=True),
    "feddyn, int8": _setting("feddyn", "--codec=int8", keeps=True),
    "feddc, fp16": _setting("feddc", "--cohort=3", "--codec=fp16", keeps=True),
    "fedtrip": _setting("fedtrip", "--cohort=3", "--codec=fp16", keeps=True),
    "fedtrip, initial": _setting("fedtrip", "--cohort=3", "--set=first=initial", keeps=True),
    "fedadm": _setting("fedadm", *SIMULATED, keeps=True),
    "fedadm, fp16": _setting("fedadm", *SIMULATED, "--codec=fp16", keeps=True),
    "pfedmo": _setting("pfedmo", keeps=True),
    "pfedmo, int8": _setting("pfedmo", "--codec=int8", keeps=True),
    "fedmrur": _setting("fedmrur", "--epochs=1", "--set=reg_gamma=0.5", "--set=reg_sigma=5", keeps=True),
    "fedtr": _setting("fedtr", keeps=True),
    "fedtr, bf16": _setting("fedtr", "--set=drift=descent", "--codec=bf16", keeps=True),
    "moon": _setting("moon", "--cohort=3", "--codec-down=fp16", keeps=True),
}  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """A moment in the progress of a run: something is reached, and then so much later."""

    what: str  # start, listening, opened, committed, settled, up, down, ended
    round: int = 0
    amount: int = 0  # bytes up or down through the target's link since that round was opened
    later_s: float = 0.0

    def __str__(self) -> str:
        where = f" {self.round}" if self.round else ""
        size = f" {self.amount} B" if self.amount else ""
        return f"{self.what}{where}{size} +{self.later_s:.2f} s"


@dataclass(frozen=True)
class Stroke:
    """One fault: what it is, whom it strikes, from when on and for how long."""

    kind: str
    target: str  # server, or the ids of a process of clients
    mark: Mark
    seconds: float
    detail: str = ""
    dice: int = 0  # for what the stroke itself draws

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.mark}: {self.kind}{detail} of {self.target} for {self.seconds:.2f} s"


@dataclass(frozen=True)
class Schedule:
    """What is run and what strikes it."""

    seed: int
    name: str  # of the setting
    hosts: tuple[str, ...]
    server_flags: tuple[str, ...] = ()
    client_flags: tuple[str, ...] = ()
    strokes: tuple[Stroke, ...] = ()

    @property
    def setting(self) -> Setting:
        return SETTINGS[self.name]

    @property
    def stays(self) -> bool:
        return "--stay" in self.client_flags

    def struck(self, kind: str) -> frozenset[str]:
        """Return who is struck by that."""
        return frozenset(stroke.target for stroke in self.strokes if stroke.kind == kind)

    def __str__(self) -> str:
        flags = " ".join((*self.server_flags, *self.client_flags))
        first = f"seed {self.seed}: {self.name}; clients {' | '.join(self.hosts)} {flags}"
        return "\n".join([first, *(f"  {stroke}" for stroke in self.strokes)])


SERVER = "server"
_DASHBOARD = "--dashboard=127.0.0.1:0"
SHORT = (0.0, 2.0)
_ON_SERVER: Mapping[str, tuple[float, float, float]] = {  # weight, seconds from and to
    "kill": (4, *SHORT),
    "term": (2, *SHORT),
    "stop": (2, 0.3, 4.0),
    "full": (3, 0.3, 5.0),
    "lock": (2, 0.5, 4.0),
    "long lock": (0.4, 10.5, 12.5),
    "stall": (2, 1.0, 9.0),
    "power": (1, *SHORT),
    "rollback": (0.7, *SHORT),
    "second": (1, 0.5, 2.0),
    "pause": (2, 0.2, 3.0),
    "port": (1, 0.5, 3.0),
}
_ON_CLIENTS: Mapping[str, tuple[float, float, float]] = {
    "kill": (4, *SHORT),
    "term": (2, *SHORT),
    "stop": (2, 0.3, 4.0),
    "full": (2, 0.3, 4.0),
    "stall": (1, 1.0, 4.0),
    "second": (1, 0.5, 2.0),
    "power": (2, *SHORT),
    "rollback": (0.7, *SHORT),
    "clone": (0.5, 0.5, 3.0),
    "cut": (2, 0.0, 3.0),
    "part": (2, 0.5, 9.0),
    "mute": (2, 0.5, 4.0),
    "slow": (2, 1.0, 5.0),
    "lag": (1, 1.0, 4.0),
    "stranger": (1.5, 0.5, 3.0),
}
EARLY = (
    "kill",
    "term",
    "stop",
    "full",
    "lock",
    "stall",
    "second",
    "pause",
    "power",
    "cut",
    "part",
    "mute",
    "slow",
)
HISTORY = ("power", "rollback", "clone")  # what may honestly cost a client its state, if it says so
AT_THE_END = ("kill", "term", "stop", "full", "cut", "part", "mute", "slow")
STRANGERS = ("fl-server", "own model", "grpc", "http")
JUMPS = ("+3650d", "-400d", "+1d", "-1d")


def schedule(seed: int) -> Schedule:
    """Make the schedule of a seed."""
    dice = random.Random(seed)
    hosts = dice.choice(HOSTS)
    server_flags = _some(dice, {_DASHBOARD: 0.15, "--eval-blocking": 0.1})
    client_flags = _some(dice, {"--stay": 0.25, "--parallel=2": 0.3})
    strokes = [*_late(dice, hosts), *_jumps(dice, hosts), *_strokes(dice, hosts)]
    strokes.sort(key=lambda stroke: (stroke.mark.what == "ended", stroke.mark.round))
    name = dice.choice(sorted(SETTINGS))
    if any(stroke.kind == "power" and stroke.target == SERVER for stroke in strokes):
        server_flags = tuple(flag for flag in server_flags if flag != _DASHBOARD)  # one process is recorded
    return Schedule(seed, name, hosts, server_flags, client_flags, tuple(strokes))


def _some(dice: random.Random, chances: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(flag for flag, chance in chances.items() if dice.random() < chance)


def _strokes(dice: random.Random, hosts: tuple[str, ...]) -> Iterator[Stroke]:
    for _ in range(dice.randint(3, 7)):
        at_server = dice.random() < 0.45
        kinds, target = (_ON_SERVER, SERVER) if at_server else (_ON_CLIENTS, dice.choice(hosts))
        (kind,) = dice.choices(list(kinds), [weight for weight, _, _ in kinds.values()])
        _, least, most = kinds[kind]
        mark = _mark(dice, early=kind in EARLY, at_end=kind in AT_THE_END)
        yield Stroke(
            kind, target, mark, dice.uniform(least, most), _detail(dice, kind), dice.randrange(1 << 30)
        )


def _late(dice: random.Random, hosts: tuple[str, ...]) -> Iterator[Stroke]:
    """Some clients come late, and so may the server; or they find a full disk."""
    for target in (SERVER, *hosts):
        if dice.random() < 0.2:
            yield Stroke("late", target, Mark("start"), dice.uniform(0.1, 2.0))
        if dice.random() < 0.04:
            yield Stroke("full", target, Mark("start"), dice.uniform(0.5, 4.0))


def _jumps(dice: random.Random, hosts: tuple[str, ...]) -> Iterator[Stroke]:
    """The clock of one end jumps, once or twice."""
    if dice.random() < 0.15:
        target = dice.choice((SERVER, *hosts))
        for _ in range(dice.randint(1, 2)):
            yield Stroke("jump", target, _mark(dice), 0.0, dice.choice(JUMPS))


def _mark(dice: random.Random, *, early: bool = False, at_end: bool = False) -> Mark:
    later = dice.choice((0.0, dice.uniform(0, 0.15)))  # the instant is the schedule's input
    edge = dice.random()
    if early and edge < 0.1:
        return Mark("listening", later_s=dice.uniform(0, 1.0))
    if at_end and edge > 0.85:
        return Mark("ended", later_s=later)
    what = dice.choices(("opened", "committed", "settled", "up", "down"), (5, 2, 2, 3, 2))[0]
    amount = int(dice.uniform(0, 1.2 * MODEL_BYTES)) if what in ("up", "down") else 0
    return Mark(what, dice.randint(1, ROUNDS), amount, later)


def _detail(dice: random.Random, kind: str) -> str:
    match kind:
        case "slow":
            return str(dice.choice((5_000, 20_000, 100_000)))  # bytes per second
        case "lag":
            return f"{dice.uniform(0.02, 0.4):.2f}"  # seconds
        case "stranger":
            return dice.choice(STRANGERS)
    return ""
