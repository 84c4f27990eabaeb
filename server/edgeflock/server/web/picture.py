"""The whole picture of a run that viewers get: made of the journal's news and the server's answers."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgeflock.common.errors import UsageError
from edgeflock.common.scores import Metric, figure_told, measures_from_text
from edgeflock.server.core import target
from edgeflock.server.costs.time_line import OF_A_ROUND
from edgeflock.server.journal.reader import Event
from edgeflock.server.web.about import About
from edgeflock.server.web.curves import Curves, finite
from edgeflock.server.web.members import Members
from edgeflock.server.web.story import Story
from edgeflock.server.web.tail import News
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

_STEP_S = 1.5  # a moment that moves by less has not moved
_MODELS = 32  # names of evaluated models that are drawn


@dataclass(frozen=True)
class Seen:
    """What a viewer has: the picture it is of, and how far."""

    generation: str = ""
    curves: int = 0
    members: int = 0
    events: int = 0

    @classmethod
    def read(cls, text: str) -> Seen:
        """Return what an identifier says; the beginning, if it says nothing."""
        generation, *numbers = text.split("/")
        if len(numbers) != 3 or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
            return cls()
        return cls(generation, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.generation}/{self.curves}/{self.members}/{self.events}"


class Picture:
    """What is known of the run now."""

    def __init__(self) -> None:
        self.about = About()
        self._name = secrets.token_hex(4)  # of this process: its revisions are no other's
        self.curves, self.members, self.story = Curves(), Members(), Story()
        self.meta: dict[str, str] = {}
        self.started: Mapping[str, Any] = {}  # fields of the newest run_started
        self.status: pb.StatusResponse | None = None  # None: the server does not answer
        self.server: dict[str, float] = {}  # what its process takes
        self.address = ""  # where clients find it
        self.models: dict[str, dict[str, float]] = {}  # newest metrics by model and name
        self.sums: Counter[str] = Counter()  # over committed rounds: updates
        self.seconds: Mapping[str, float] = {}  # of the server, by what it did, of all rounds
        self._moments: dict[str, float] = {}
        self._here: dict[str, int] = {}  # of the open round's clients

    @property
    def generation(self) -> str:
        return f"{self._name}.{self.curves.cut}.{self.members.cut}"

    # -------------------------------------------------------------------------------- coming in

    def take(self, news: News) -> None:
        """Take what is new in the journal."""
        self.meta = news.meta
        for event in news.events:
            self.story.add(event)
            self._take_event(event)
        for round, line in news.lines.items():
            self._take_line(round, line)
        self.curves.thin()
        self.seconds = news.seconds or self.seconds
        self.members.seats = self.about.clients
        self.members.take(news)

    def _take_event(self, event: Event) -> None:
        fields = event.fields
        match event.name:
            case "run_started":
                self.started = fields
            case "round_committed" | "last_round_committed":
                self.curves.put(int(fields["round"]), {**fields, "at": event.at})
                self._sum(fields)
            case "evaluated":
                self._take_score(fields)
            case "epoch_raised":
                self.curves.cut_after(int(fields["round"]))

    def _sum(self, fields: Mapping[str, Any]) -> None:
        self.sums["rounds"] += 1
        self.sums["counted"] += fields.get("counted") or 0
        for verdict in (fields.get("not_counted") or {}).values():
            self.sums[f"verdict {verdict}"] += 1

    def _take_line(self, round: int, line: dict[str, float]) -> None:
        """Put a whole time line in place of what was known when the round was committed."""
        if self.curves.row(round) is not None:
            self.curves.put(round, {**line, "seconds": sum(line.values())})

    def _take_score(self, fields: Mapping[str, Any]) -> None:
        model = str(fields.get("model", "global"))
        if model not in self.models and len(self.models) >= _MODELS:
            return
        figure = figure_told(fields)
        known = {name: float(fields[name]) for name in self._metrics(figure) if name in fields}
        self.models[model] = known
        row = {f"{name} {model}": value for name, value in known.items()}
        if "worst_tenth" in fields:
            row[f"worst_tenth {model}"] = fields["worst_tenth"]
        self.curves.put(int(fields["round"]), row)
        if model == "global":
            self.curves.score(int(fields["round"]), known[figure.name], figure)

    def _metrics(self, figure: Metric) -> list[str]:
        return list(dict.fromkeys((figure.name, *(one.name for one in self.measures))))

    @property
    def measures(self) -> tuple[Metric, ...]:
        """By what the run's models are judged, its figure first."""
        return measures_from_text(self.meta.get("measures"))

    def _target(self) -> dict[str, Any] | None:
        """Return what the run is to reach, if anything."""
        try:
            found = target.parse(self.about.target, self.measures)
        except UsageError:  # the journal does not say yet what there is
            return None
        if not found:
            return None
        return {"name": found.metric.name, "value": found.limit, "higher": found.metric.higher}

    def observe(self, status: pb.StatusResponse | None, server: dict[str, float]) -> None:
        """Take what the server says of this moment, and what its process takes."""
        self.status, self.server = status, server
        self._here = _updates(status.members) if status is not None else {}
        self.members.observe(status, time.time(), over=self.state() == "finished")

    # -------------------------------------------------------------------------------- going out

    def since(self, seen: Seen) -> tuple[dict[str, Any], Seen]:
        """Return what a viewer lacks, and what it has with that."""
        fresh = seen.generation != self.generation
        known = Seen() if fresh else seen
        now = Seen(self.generation, self.curves.revision, self.members.revision, self.story.cursor)
        thinned = self.curves.is_thinned_since(known.curves)  # then the viewer gets all rows anew
        parts: dict[str, Any] = {
            "thinned": thinned,
            "rounds": self.curves.since(0 if thinned else known.curves),
            "clients": self.members.since(known.members),
            "crowd": self.members.gathered() if fresh or self.members.revision > known.members else {},
            "events": self.story.since(known.events),
            "refused": self.story.refused_since(known.events),
        }
        told: dict[str, Any] = {"fresh": fresh, "run": self._run()}
        return told | {name: part for name, part in parts.items() if part}, now

    def _run(self) -> dict[str, Any]:
        """Return the state of the run as a whole."""
        told: dict[str, Any] = {
            "id": self.meta.get("run_id", ""),
            "epoch": int(self.meta.get("epoch", "0")),
            "method": self.started.get("method", self.about.method),
            "data": self.about.data,
            "model": self.about.model,
            "seats": self.about.clients,
            "rounds": self.started.get("rounds", 0),
            "state": self.state(),
            "ended": self.meta.get("ended_kind", ""),
            "reason": self.meta.get("ended_reason", ""),
            "target": self._target(),
            "figure": {"name": self.measures[0].name, "higher": self.measures[0].higher},
            "metrics": [one.name for one in self.measures],
            "eval_every": self.about.eval_every,
            "drawn": self.curves.stride,
            "best": self.curves.best(),
            "command": self.about.command(self.address),
            "server": self.server,
            "seconds": finite(sum(self.seconds.get(name, 0.0) for name in OF_A_ROUND)),
            "now": round(time.time(), 1),
        }
        return told if self.status is None else told | self._live(self.status)

    def state(self) -> str:
        """Return the state in one word; `unreachable` if the server does not answer and has not ended."""
        if self.status is not None:
            return aggregator_pb2.RunState.Name(self.status.state).removeprefix("RUN_STATE_").lower()
        return "finished" if self.over else "unreachable"

    @property
    def over(self) -> bool:
        """Whether the run has ended; a server that only goes away may be back on this port soon."""
        return "ended_kind" in self.meta

    def _live(self, status: pb.StatusResponse) -> dict[str, Any]:
        budgets = [{"name": b.name, "used": round(b.used, 3), "limit": b.limit} for b in status.budgets]
        told: dict[str, Any] = {
            "method": status.method,
            "round": status.round,
            "rounds": status.rounds,
            "seats": status.clients,
            "reason": status.reason,
            "budgets": budgets,
        }
        if status.HasField("open"):
            told["open"] = self._open(status.open) | self._here
        return told

    def _open(self, open: pb.OpenRound) -> dict[str, Any]:
        now = time.time()
        told: dict[str, Any] = {"round": open.round, "phase": open.phase, "closing": open.closing}
        told["began"] = self._still("began", now - open.elapsed_s)
        if open.HasField("remaining_s"):
            told["deadline"] = self._still("deadline", now + open.remaining_s)
        return told

    def _still(self, name: str, moment: float) -> float:
        """Return a moment that does not tremble with the time of the question."""
        if abs(moment - self._moments.get(name, 0.0)) > _STEP_S:
            self._moments[name] = round(moment, 1)
        return self._moments[name]


def _updates(members: Iterable[pb.ClientStatus]) -> dict[str, int]:
    """Count the clients of the open round: how many, whose update is here, who of the others is away."""
    cohort = [member for member in members if member.in_cohort]
    missing = [member for member in cohort if not member.received]
    away = sum(not member.online for member in missing)
    return {"cohort": len(cohort), "here": len(cohort) - len(missing), "away": away}
