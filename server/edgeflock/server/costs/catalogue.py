"""Every column of the ledger, once: its name and unit, how several make one, who says it, what people read.

Tables, sums, dashboard, reports, exports and the documentation are made from it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """How the values of several rounds or clients make one."""

    SUM = "sum"
    HIGHEST = "highest"
    NONE = "none"  # a word: each stands for itself


class Source(StrEnum):
    """Who says it."""

    SERVER = "server"  # which has counted or measured it itself
    CLIENT = "client"  # which the server believes within limits
    DERIVED = "derived"  # the server, from what the client says


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column; `None` in it is what nobody could tell."""

    name: str
    kind: type[int] | type[float] | type[str]
    quantity: str  # as in `units.amount`; its unit ends the name, unless it is a count; empty: a word
    source: Source
    meaning: str
    rule: Rule = Rule.SUM
    heading: str = ""  # in a report's table of the clients; empty: it stands in none


def _count(name: str, source: Source, meaning: str, heading: str = "") -> Column:
    return Column(name=name, kind=int, quantity="count", source=source, meaning=meaning, heading=heading)


def _seconds(name: str, source: Source, meaning: str, heading: str = "") -> Column:
    return Column(name=name, kind=float, quantity="seconds", source=source, meaning=meaning, heading=heading)


def _bytes(
    name: str, meaning: str, heading: str = "", source: Source = Source.SERVER, rule: Rule = Rule.SUM
) -> Column:
    return Column(
        name=name, kind=int, quantity="bytes", source=source, meaning=meaning, heading=heading, rule=rule
    )


def _flops(name: str, meaning: str, heading: str = "") -> Column:
    return Column(
        name=name, kind=float, quantity="flops", source=Source.DERIVED, meaning=meaning, heading=heading
    )


def _joules(source: Source, meaning: str, heading: str = "") -> Column:
    return Column(
        name="energy_j", kind=float, quantity="energy", source=source, meaning=meaning, heading=heading
    )


# ---------------------------------------------------------------------- by round and client: `costs`

BY_CLIENT = (
    _count("samples", Source.CLIENT, "that the client trains on"),
    _count("steps", Source.CLIENT, "of its local work", "steps"),
    _count("samples_done", Source.CLIENT, "in all steps together"),
    _seconds("fetch_s", Source.CLIENT, "fetching what the round begins with", "fetch"),
    _seconds("train_s", Source.CLIENT, "training, with the test of its own model", "train"),
    _seconds("deliver_s", Source.CLIENT, "delivering the update", "deliver"),
    _seconds("wait_s", Source.CLIENT, "waiting, up to the next verdict", "wait"),
    _seconds("cpu_s", Source.CLIENT, "CPU time", "CPU"),
    _bytes("peak_rss_bytes", "most memory of its process", "most memory", Source.CLIENT, Rule.HIGHEST),
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
    _bytes("peak_gpu_bytes", "most memory of its GPU", "most GPU memory", Source.CLIENT, Rule.HIGHEST),
    Column(
        name="temperature_c",
        kind=float,
        quantity="celsius",
        source=Source.CLIENT,
        meaning="of its hottest zone",
        rule=Rule.HIGHEST,
        heading="hottest",
    ),
    _count("throttled", Source.CLIENT, "1: its clock was held down", "rounds throttled"),
    _joules(Source.CLIENT, "energy", "energy"),
    Column(
        name="energy_source",
        kind=str,
        quantity="",
        source=Source.CLIENT,
        meaning="where its joules come from: `rapl`, `hwmon`, or `model`, watts that somebody stated",
        rule=Rule.NONE,
    ),
)

# ------------------------------------------------------------------------- of a round: `round_costs`

GATHER = _seconds("gather_s", Source.SERVER, "until the clients of the first round are there")
SELECT = _seconds("select_s", Source.SERVER, "cohort, journal, spool, broadcast")
OPEN = _seconds("open_s", Source.SERVER, "clients at work")
FOLD = _seconds("fold_s", Source.SERVER, "what is left to fold when the round is closed")
COMMIT = _seconds("commit_s", Source.SERVER, "next state, checkpoint, journal")
EVALUATE = _seconds("evaluate_s", Source.SERVER, "tests for which everything waits")
PAUSED = _seconds("paused_s", Source.SERVER, "paused by the operator, a full disk, too few clients")

# The server's exclusive time line: only these add up to the wall time of rounds. Before the first one the
# server gathers its clients, which is no round's time.
TIME_LINE = (SELECT, OPEN, FOLD, COMMIT, EVALUATE, PAUSED)
BUSY = (  # beside the line, never added to it
    _seconds("fold_busy", Source.SERVER, "seconds of folding ahead while the round is open"),
    _seconds("evaluate_busy", Source.SERVER, "seconds of the test beside the next round"),
    _seconds("prepare_busy", Source.SERVER, "seconds of training on the server"),
)
BY_ROUND = (
    GATHER,
    *TIME_LINE,
    *BUSY,
    _seconds("server_cpu_s", Source.SERVER, "CPU time of the server's process"),
    Column(
        name="server_peak_rss_bytes",
        kind=float,
        quantity="bytes",
        source=Source.SERVER,
        meaning="most memory of the server's process",
        rule=Rule.HIGHEST,
    ),
    _joules(Source.SERVER, "energy of the server's process, where it has a sensor"),
)

# ----------------------------------------- by round, client, direction, kind and codec: `bundle_bytes`

BY_BUNDLE = (_bytes("bytes", "payload that held this, what came twice included"),)


def names(columns: Iterable[Column], *, source: Source | None = None) -> tuple[str, ...]:
    """Return the names of columns, of all or of those that one source says."""
    return tuple(column.name for column in columns if source in (None, column.source))


NUMBERS = tuple(column for column in BY_CLIENT if column.kind is not str)
