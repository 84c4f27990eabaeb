"""The clients as viewers see them: what each does now, what it has done, what it costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from edgeflock.common.command.crowd import is_crowd
from edgeflock.server.costs.catalogue import together
from edgeflock.server.web.selection import gathered
from edgeflock.server.web.tail import News
from edgeflock.v1 import control_pb2 as pb

Shown = dict[str, Any]

_MOST_STRANGERS = 2000  # ids without a seat that are remembered
_SEEN_STEP_S = 1.5  # a smaller difference is the clocks', not the client's
_COSTS = {"down": "bytes_down", "up": "bytes_up", "cpu": "cpu_s", "energy": "energy_j"}
_LATEST = {
    "rss": "peak_rss_bytes",
    "temperature": "temperature_c",
    "throttled": "throttled",
    "energy_source": "energy_source",
}
_LEFT: Shown = {"state": "left", "done": 0, "total": 0}
DEVICE = ("machine", "system", "cores", "memory_bytes", "compute", "torch")


DOINGS = (  # what a client can be doing
    "away",
    "left",  # the run is over
    "waiting",  # for a seat
    "preparing",
    "idle",
    "training",
    "overdue",  # the round waits for it without a deadline
    "uploading",
    "delivered",
    "refused",  # the task
    "quarantined",
    "unknown",  # the server does not answer
)


def doing(member: pb.ClientStatus, *, open: bool, overdue: bool) -> str:
    """Return what a client does while the run goes on, in one word."""
    if not member.online:
        return "away"
    if not member.seated:
        return "waiting"
    if not member.ready:
        return "preparing"
    if member.HasField("quarantine"):
        return "quarantined"
    if not open or not member.in_cohort:
        return "idle"
    if member.received:
        return "delivered"
    if member.refused:
        return "refused"
    if member.upload_size:
        return "uploading"
    return "overdue" if overdue else "training"


class Members:
    """All clients by id; every change gives one the next revision."""

    def __init__(self) -> None:
        self.seats = 0  # of the run, as far as that is known
        self.crowded = False  # there are, or were, too many to be told one by one
        self.revision = 0
        self.cut = 0  # how often all is to be told anew
        self.names: dict[int, str] = {}
        self._shown: dict[str, Shown] = {}
        self._revisions: dict[str, int] = {}
        self._totals: dict[int, dict[str, float]] = {}  # settled, by seat
        self._joined: dict[str, Shown] = {}  # devices by id, of clients that may have no seat
        self._verdicts: dict[int, Counter[str]] = defaultdict(Counter)
        self._last: dict[int, tuple[int, str]] = {}  # round and verdict of the newest outcome
        self._gathered: tuple[int, Shown] = (-1, {})  # at a revision

    # ------------------------------------------------------------------------- what the journal says

    def take(self, news: News) -> None:
        """Take what is new in the journal."""
        for event in news.events:
            if event.name == "client_joined" and len(self._joined) < self.seats + _MOST_STRANGERS:
                self._joined[str(event.fields.get("client"))] = _device(event.fields)
        for seat, name, samples in news.seats:
            self.names[seat] = name
            device = {"device": self._joined[name]} if name in self._joined else {}
            self._change(name, {"seat": seat, "samples": samples, **device})
        for seat, verdict, count, round in news.verdicts:
            self._verdicts[seat][verdict] += count
            self._last[seat] = max(self._last.get(seat, (0, "")), (round, verdict))
        for seat in {seat for seat, *_ in news.verdicts}:
            self._change(self._name(seat), self._record(seat))
        for seat, growth in news.settled.items():
            self._totals[seat] = together((self._totals.get(seat, {}), growth.sums))
        for seat in {*news.settled, *news.recent}:
            last = news.recent.get(seat) or news.settled[seat]
            more = news.recent[seat].sums if seat in news.recent else {}
            now = together((self._totals.get(seat, {}), more))
            costs = {name: now[column] for name, column in _COSTS.items() if column in now}
            latest = {name: last.newest.get(column) for name, column in _LATEST.items()}
            self._change(self._name(seat), costs | {name: v for name, v in latest.items() if v is not None})

    def _record(self, seat: int) -> Shown:
        counts, (round, verdict) = self._verdicts[seat], self._last[seat]
        missed = sum(counts.values()) - counts["counted"] - counts["late"]
        return {
            "counted": counts["counted"],
            "late": counts["late"],
            "missed": missed,
            "last_round": round,
            "verdict": verdict,
        }

    def _name(self, seat: int) -> str:
        return self.names.get(seat, f"seat {seat}")

    # ------------------------------------------------------------------------- what the server says

    def observe(self, status: pb.StatusResponse | None, now: float, *, over: bool = False) -> None:
        """Take what the server says now; None: it does not answer. When the run is over all leave."""
        if status is None:
            for name in [name for name, shown in self._shown.items() if shown["state"] != "gone"]:
                self._change(name, _LEFT if over else {"state": "unknown"})
            return
        open = status.HasField("open") and status.open.phase == "open"
        overdue = open and not status.open.HasField("remaining_s")
        self._miss({member.client_id for member in status.members}, over)
        for member in status.members:
            state = doing(member, open=open, overdue=overdue)
            self._change(member.client_id, self._now(member, state, now) | (_LEFT if over else {}))

    def _miss(self, here: set[str], over: bool) -> None:
        """Strangers that have left are forgotten; viewers hear of it, at some time by all being told anew."""
        for name in [name for name in self._shown if name not in here]:
            seated = "seat" in self._shown[name]
            self._change(name, {"state": "gone" if not seated else "left" if over else "away"})
        gone = [name for name, shown in self._shown.items() if shown["state"] == "gone"]
        if len(gone) > _MOST_STRANGERS:
            for name in gone:
                del self._shown[name], self._revisions[name]
            self.cut += 1

    def _now(self, member: pb.ClientStatus, state: str, now: float) -> Shown:
        busy = state in ("training", "overdue")
        shown: Shown = {
            "state": state,
            "done": member.steps_done if busy else member.upload_held,
            "total": member.steps_total if busy else member.upload_size,
            "spent": member.cpu_s if busy else 0.0,  # of the open round
            "bad": member.bad_updates,
            "until": member.quarantine.until_round,  # 0: it is in no quarantine
            "why": member.quarantine.reason,
        }
        if busy and member.HasField("temperature_c"):
            shown["temperature"] = member.temperature_c
        if member.seated:
            shown |= {"seat": member.index, "samples": member.samples}
        if member.HasField("unseen_s"):
            seen, before = now - member.unseen_s, self._shown.get(member.client_id, {}).get("seen", 0.0)
            shown["seen"] = before if abs(seen - before) < _SEEN_STEP_S else round(seen, 1)
        if member.HasField("device"):
            said = {name: getattr(member.device, name) for name in DEVICE}
            shown["device"] = _device({**said, "software": member.software})
        return shown

    # ------------------------------------------------------------------------- what viewers get

    def since(self, revision: int) -> list[Shown]:
        """Return the clients that changed since then; of a crowd none."""
        if self.crowded:
            return []
        return [self._shown[name] for name, changed in self._revisions.items() if changed > revision]

    def all(self) -> Collection[Shown]:
        return self._shown.values()

    def gathered(self) -> Shown:
        """Return what is told of all of them together."""
        if self._gathered[0] != self.revision:
            self._gathered = self.revision, {"each": not self.crowded, **gathered(self.all())}
        return self._gathered[1]

    def _change(self, name: str, values: Shown) -> None:
        before = self._shown.get(name)
        if before is None:
            before = self._shown[name] = {"id": name, "state": "unknown"}
            self.crowded = self.crowded or is_crowd(self._shown)
        elif values.items() <= before.items():
            return
        self.revision += 1
        self._shown[name] = before | values
        self._revisions[name] = self.revision


def _device(fields: Mapping[str, Any]) -> Shown:
    return {name: fields[name] for name in (*DEVICE, "software") if fields.get(name)}
