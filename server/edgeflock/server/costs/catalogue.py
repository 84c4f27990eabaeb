"""Every column of the ledger, once: its name and unit, how several make one, who says it, what people read.

Tables, sums, dashboard, reports, exports and the documentation are made from it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

_UNITS = {"bytes": "B", "seconds": "s", "energy": "J", "flops": "FLOP", "celsius": "°C"}


class Rule(StrEnum):
    """How the values of several rounds or clients make one."""

    SUM = "sum"
    HIGHEST = "highest"
    NONE = "none"  # a word: each stands for itself


class Origin(StrEnum):
    """Who says it."""

    SERVER = "server"  # which has counted or measured it itself
    CLIENT = "client"  # which the server believes within limits
    DERIVED = "derived"  # the server, from what the client says


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column; `None` in it is what nobody could tell."""

    name: str
    kind: type[int] | type[float] | type[str]
    quantity: str  # as in `units.amount`; empty: a word
    origin: Origin
    meaning: str
    rule: Rule = Rule.SUM
    heading: str = ""  # in a report's table of the clients; empty: it stands in none

    @property
    def unit(self) -> str:
        """What its numbers count; empty: things, or it is a word."""
        return _UNITS.get(self.quantity, "")


def _count(name: str, origin: Origin, meaning: str, heading: str = "") -> Column:
    return Column(name=name, kind=int, quantity="count", origin=origin, meaning=meaning, heading=heading)


def _seconds(name: str, origin: Origin, meaning: str, heading: str = "") -> Column:
    return Column(name=name, kind=float, quantity="seconds", origin=origin, meaning=meaning, heading=heading)


def _bytes(
    name: str, meaning: str, heading: str = "", origin: Origin = Origin.SERVER, rule: Rule = Rule.SUM
) -> Column:
    return Column(
        name=name, kind=int, quantity="bytes", origin=origin, meaning=meaning, heading=heading, rule=rule
    )


def _flops(name: str, meaning: str, heading: str = "") -> Column:
    return Column(
        name=name, kind=float, quantity="flops", origin=Origin.DERIVED, meaning=meaning, heading=heading
    )


def _joules(name: str, origin: Origin, meaning: str, heading: str = "") -> Column:
    return Column(name=name, kind=float, quantity="energy", origin=origin, meaning=meaning, heading=heading)


# ---------------------------------------------------------------------- by round and client: `costs`

BY_CLIENT = (
    _count("samples", Origin.CLIENT, "samples that the client trains on"),
    _count("steps", Origin.CLIENT, "steps of its local work", "steps"),
    _count("samples_done", Origin.CLIENT, "samples in all steps together"),
    _count("forward_samples", Origin.CLIENT, "samples that passed through the model, in all passes together"),
    _count("backward_samples", Origin.CLIENT, "and back"),
    _seconds("fetch_s", Origin.CLIENT, "fetching what the round begins with", "fetch"),
    _seconds("train_s", Origin.CLIENT, "training, without the test of its own model", "train"),
    _seconds("deliver_s", Origin.CLIENT, "delivering the update", "deliver"),
    _seconds("wait_s", Origin.CLIENT, "waiting, up to the next verdict", "wait"),
    _seconds("cpu_s", Origin.CLIENT, "CPU time, without the test of its own model", "CPU"),
    _bytes("peak_rss_bytes", "most memory of its process", "most memory", Origin.CLIENT, Rule.HIGHEST),
    _bytes("bytes_down", "payload to the client", "down"),
    _bytes("bytes_up", "payload from the client", "up"),
    _bytes("resent_bytes", "payload that came more than once", "sent twice"),
    _bytes("message_bytes_down", "payload with all gRPC messages around it, to the client"),
    _bytes("message_bytes_up", "the same from the client"),
    _bytes("wire_bytes_down", "the same with HTTP/2, TCP, IP and Ethernet, estimated, to the client"),
    _bytes("wire_bytes_up", "the same from the client"),
    _flops("flops", "operations of the local work", "operations"),
    _flops("method_flops", "of these, what the method adds to FedAvg", "the method's own"),
    _flops("method_pass_flops", "of these, in passes through the model"),
    _bytes("peak_gpu_bytes", "most memory of its GPU", "most GPU memory", Origin.CLIENT, Rule.HIGHEST),
    Column(
        name="temperature_c",
        kind=float,
        quantity="celsius",
        origin=Origin.CLIENT,
        meaning="the highest of the round, of its hottest zone",
        rule=Rule.HIGHEST,
        heading="hottest",
    ),
    _count("throttled", Origin.CLIENT, "1: its clock was held down", "rounds throttled"),
    _joules("energy_j", Origin.CLIENT, "energy of the round, without the test of its own model"),
    Column(
        name="energy_source",
        kind=str,
        quantity="",
        origin=Origin.CLIENT,
        meaning="where its joules come from: `rapl`, `hwmon`, or `model`, watts that somebody stated",
        rule=Rule.NONE,
    ),
    # A test of the client's own model is no cost of the run: none of these is in any other column.
    _seconds("exam_s", Origin.CLIENT, "testing its own model", "own tests"),
    _seconds("exam_cpu_s", Origin.CLIENT, "CPU time of that", "CPU of these"),
    _joules("exam_j", Origin.CLIENT, "energy of that", "energy of these"),
    _bytes("exam_bytes", "payload of a task that is such a test and nothing else", "bytes of these"),
    _count(
        "at_least",
        Origin.SERVER,
        "1: these bytes, or more: a server was killed in the round, and what it had not written is gone",
    ),
)

# In sums alone: the joules of `energy_j` by what its `energy_source` says.
SENSOR_J = _joules("sensor_j", Origin.DERIVED, "measured by sensors", "energy")
MODEL_J = _joules("model_j", Origin.DERIVED, "watts that somebody stated", "energy, watts as stated")
JOULES = (SENSOR_J, MODEL_J)

# ------------------------------------------------------------------------- of a round: `round_costs`

GATHER = _seconds("gather_s", Origin.SERVER, "until the clients of the round are there, or back")
HELD = _seconds(
    "held_s", Origin.SERVER, "between two rounds: paused by the operator, or until it is time (--every)"
)
EXAM = _seconds("exam_s", Origin.SERVER, "for nothing but tests of clients' own models")
SELECT = _seconds("select_s", Origin.SERVER, "cohort, journal, spool, broadcast")
OPEN = _seconds("open_s", Origin.SERVER, "clients at work")
FOLD = _seconds("fold_s", Origin.SERVER, "what is left to fold when the round is closed")
COMMIT = _seconds("commit_s", Origin.SERVER, "next state, checkpoint, journal")
EVALUATE = _seconds("evaluate_s", Origin.SERVER, "tests for which everything waits")
PAUSED = _seconds("paused_s", Origin.SERVER, "in mid-round: a full disk, too few updates")

# The server's exclusive time line: only these add up to the wall time of rounds.
BESIDE = (GATHER, HELD, EXAM)  # on the line, and no cost of any round
TIME_LINE = (SELECT, OPEN, FOLD, COMMIT, EVALUATE, PAUSED)
BUSY = (  # beside the line, never added to it
    _seconds("fold_busy", Origin.SERVER, "folding ahead while the round is open"),
    _seconds("evaluate_busy", Origin.SERVER, "the test beside the next round"),
    _seconds("prepare_busy", Origin.SERVER, "training on the server (pFedMo)"),
)
SIMULATED = _seconds("simulated_s", Origin.SERVER, "of the simulated clock, where it is not the real one")
RESULT_BYTES = _bytes(
    "result_bytes", "payload of models that devices have fetched to keep, what came twice included"
)
SERVER_FLOPS = _flops("server_flops", "operations of the fold, and of what a method trains on the server")
BY_ROUND = (
    *BESIDE,
    *TIME_LINE,
    *BUSY,
    SIMULATED,
    SERVER_FLOPS,
    RESULT_BYTES,
    _seconds("server_cpu_s", Origin.SERVER, "CPU time of the server's process"),
    Column(
        name="server_peak_rss_bytes",
        kind=int,
        quantity="bytes",
        origin=Origin.SERVER,
        meaning="most memory of the server's process",
        rule=Rule.HIGHEST,
    ),
    _joules("energy_j", Origin.SERVER, "energy of the server's process, where it has a sensor"),
)

# ----------------------------------------- by round, client, direction, kind and codec: `bundle_bytes`

BY_BUNDLE = (_bytes("bytes", "payload that held this, what came twice included"),)


def names(columns: Iterable[Column], *, origin: Origin | None = None) -> tuple[str, ...]:
    """Return the names of columns, of all or of those that one of them says."""
    return tuple(column.name for column in columns if origin in (None, column.origin))


NUMBERS = tuple(column for column in BY_CLIENT if column.kind is not str)
_HIGHEST = frozenset(column.name for column in (*BY_CLIENT, *BY_ROUND) if column.rule is Rule.HIGHEST)


def is_highest(name: str) -> bool:
    """Whether several of these are told by the largest: they do not add up."""
    return name in _HIGHEST


def together(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return one row for several: sums, and of what does not add up the highest."""
    found: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if is_highest(name):
                found[name] = max(value, found.get(name, value))
            else:
                found[name] = found.get(name, 0) + value
    return found
