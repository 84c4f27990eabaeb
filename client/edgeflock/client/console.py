"""fl-client for people: its log in sentences, one line a round for all hosted clients, at the end the sum."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeflock.common.command.log import in_words, tell_plainly
from edgeflock.common.command.terminal import Line, Terminal
from edgeflock.common.command.units import size

_LOOK_S = 0.25
_REMINDED_S = 60.0  # between two words on a server that is not reached
_FEW = 4  # hosted clients of which each is told of by itself
_STYLES = {"warning": "warning", "error": "error"}
_SENTENCES = {
    "quarantined": "in quarantine up to round {until_round}: {reason}",
    "released": "out of quarantine: takes part again",
    "outbox_discarded": "the update of round {round} is dropped: {reason}",
    "state_lost": "what the method keeps from round to round is lost: {reason}",
    "state_went_back": "goes back to the state of round {to_round}, as the server did",
    "update_waits": "the update of round {round} waits until the server comes so far: {reason}",
    "fetch_refused": "round {round}: the model is not to be had: {reason}",
    "data_awaited": "there is nothing to train on yet, it is waited for: {reason}",
    "task_refused": "round {round} cannot be done: {reason}",
    "round_abandoned": "round {round}: given up, nobody waits for it any more",
    "try_again": "the server is busy: {reason}",
    "transfer_interrupted": "a transfer was interrupted and goes on where it was: {reason}",
    "identity_renewed": "this client's identity is made anew: {reason}",
    "image_copied": (
        "{state_dir} was made on another machine: if that one still runs, give one of the two another --id"
    ),
    "code_differs": "{reason}",
    "run_given_up": "this run is given up, the next one is waited for: {reason}",
    "model_saved": "the model of round {round} is in {path}",
    "model_not_saved": "the model of round {round} is not saved: {reason}",
    "moved": "goes on to the gate at {to}",
    "model_not_offered": "the run is over, and its server offers no model to keep",
    "on_model_failed": "--on-model {command} failed: {reason}",
    "seat_passed_over": "a seat is passed over: {reason}",
}
_UNTOLD = ("energy_source", "client_failed")  # of no use here; told when the process ends


@dataclass
class RoundTally:
    """What became of the hosted clients' updates of one round."""

    number: int
    counted: int = 0
    missed: dict[str, str] = field(default_factory=dict)  # by client: why
    samples: int = 0
    train_s: float = 0.0
    bytes_up: int = 0

    @property
    def settled(self) -> int:
        return self.counted + len(self.missed)

    def take(self, fields: Mapping[str, Any]) -> None:
        """Take the word on one update."""
        if fields.get("counted"):
            self.counted += 1
        else:
            self.missed[str(fields.get("client_id"))] = str(fields.get("reason") or "not counted")
        self.samples += int(fields.get("samples") or 0)
        self.train_s = max(self.train_s, float(fields.get("train_s") or 0.0))
        self.bytes_up += int(fields.get("bytes_up") or 0)

    def line(self, hosted: int) -> Line:
        did = f"  {self.samples:,} samples in {self.train_s:.1f} s, {size(self.bytes_up)} up  "
        return [(f"round {self.number}", "bold"), (did, ""), self._word(hosted)]

    def _word(self, hosted: int) -> tuple[str, str]:
        if hosted == 1:
            why = next(iter(self.missed.values()), "")
            return ("counted", "good") if self.counted else (f"not counted: {why}", "warning")
        text = f"{self.counted} of {self.settled} counted"
        if not self.missed:
            return text, "good"
        named = ", ".join(f"{name} ({why})" for name, why in list(self.missed.items())[:_FEW])
        return f"{text}, not {named}{' and others' if len(self.missed) > _FEW else ''}", "warning"


@dataclass
class Sum:
    """What the hosted clients have done in a run, as far as this process knows."""

    begun: set[str] = field(default_factory=set)  # who takes part in it
    rounds: set[int] = field(default_factory=set)
    counted: int = 0
    bytes_up: int = 0
    over: set[str] = field(default_factory=set)

    def take(self, fields: Mapping[str, Any]) -> None:
        self.rounds.add(int(fields["round"]))
        self.counted += bool(fields.get("counted"))
        self.bytes_up += int(fields.get("bytes_up") or 0)

    @property
    def words(self) -> str:
        rounds = f"{len(self.rounds):,} round{'s'[: len(self.rounds) != 1]}"
        return f"{rounds}, {self.counted:,} counted, {size(self.bytes_up)} up"


@dataclass(frozen=True)
class Work:
    """What one hosted client is at."""

    round: int
    done: int  # steps
    total: int  # 0: not known yet


class ClientConsole:
    """What a person at fl-client sees. Told of every line of the log, from whatever thread."""

    def __init__(self, terminal: Terminal | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.terminal = terminal or Terminal(sys.stderr)
        self._plainly = tell_plainly(self.terminal)
        self._clock, self._lock = clock, threading.RLock()
        self._hosted = 1  # clients
        self._server = ""
        self._here: set[str] = set()  # who is connected
        self._met = False  # somebody was, in this process
        self._reminded = -_REMINDED_S
        self._away = False  # since somebody was connected
        self._rounds: dict[int, RoundTally] = {}
        self._sum = Sum()
        self._words = ""  # what it does
        self._at, self._since = "", clock()  # what was shown last, and since when
        self._shown = False
        self._following: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Show that there is life, before anything is known."""
        self._shown = True
        self._wait("fl-client starts")

    def close(self) -> None:
        with self._lock:
            self._settle_all()
            self.terminal.show(())

    # ------------------------------------------------------------------------------- the log

    def tell(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        """Take one line of the log."""
        with self._lock:
            self._take(level, name, fields)

    def _take(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        match name:
            case "client_started":
                self._start(fields)
            case "connected":
                self._connect(str(fields["client_id"]))
            case "ready":
                self._ready(fields)
            case "server_not_reached":
                self._miss(fields)
            case "update_settled":
                self._settle(fields)
            case "run_over":
                self._end(fields)
            case "draining":
                self.terminal.tell(f"leaving; at most {fields['limit_s']:.0f} s", "dim")
            case "ended":
                self._leave(str(fields["reason"]))
            case _ if name in _UNTOLD:
                pass
            case _:
                self._say(level, name, fields)

    def _say(self, level: str, name: str, fields: Mapping[str, Any]) -> None:
        """Tell whatever is not told in a manner of its own; of many clients only what needs a look."""
        if self._hosted > _FEW and level == "info" and "client_id" in fields:
            return
        if name not in _SENTENCES:
            self._plainly(level, name, fields)
            return
        try:
            words = _SENTENCES[name].format(**fields)
        except (KeyError, ValueError):
            words, _ = in_words(level, name, fields)
        self.terminal.tell(self._who(fields) + words, _STYLES.get(level, ""))

    def _who(self, fields: Mapping[str, Any]) -> str:
        return f"{fields['client_id']}: " if self._hosted > 1 and "client_id" in fields else ""

    def _start(self, fields: Mapping[str, Any]) -> None:
        self._hosted, self._server = int(fields["hosted"]), str(fields["server"])
        who = str(fields["clients"][0]) if self._hosted == 1 else f"{self._hosted} clients"
        self.terminal.say([(f"fl-client: {who}, state in {fields['state_dir']}", "bold")], indent=2)
        self._wait(f"looking for the server at {self._server}")

    # ------------------------------------------------------------------------------- the server

    def _connect(self, client_id: str) -> None:
        """Say once that all are connected, for the first time or again."""
        self._here.add(client_id)
        if len(self._here) < self._hosted:
            return
        if not self._met or self._away:
            again = " again" if self._met else ""
            who = f"as {client_id}" if self._hosted == 1 else f"for {self._hosted} clients"
            self.terminal.tell(f"connected{again} to {self._server} {who}", "good")
        self._met, self._away, self._reminded = True, False, -_REMINDED_S
        self._wait("connected, waits for a task")

    def _ready(self, fields: Mapping[str, Any]) -> None:
        if not fields.get("new"):
            return
        client = str(fields["client_id"])
        if client in self._sum.begun:  # that run was left without its end
            self._sum = Sum()
        self._sum.begun.add(client)
        if self._hosted <= _FEW:
            seat = f"seat {fields['seat']}: {fields['samples']:,} samples are ready"
            self.terminal.tell(self._who(fields) + seat)

    def _miss(self, fields: Mapping[str, Any]) -> None:
        """One sentence, then one a minute, however many clients try however often."""
        now, why = self._clock(), str(fields["reason"])
        self._here.discard(str(fields.get("client_id")))
        because = f", {why}" if why.endswith(")") else f" ({why})"
        if fields.get("met"):
            words = f"the server at {self._server} says: {why}"
        elif not self._met:
            words = f"no server at {self._server} yet{because}"
        else:
            words = f"the server at {self._server} is away{because}; nothing is lost"
        self._away = True
        self._wait(f"trying again to reach {self._server}")
        if now - self._reminded >= _REMINDED_S:
            self._reminded = now
            self.terminal.tell(f"{words}: trying again", "warning")

    # ------------------------------------------------------------------------------- rounds

    def _settle(self, fields: Mapping[str, Any]) -> None:
        number = int(fields["round"])
        for earlier in [known for known in self._rounds if known < number]:
            self._show(earlier)
        self._rounds.setdefault(number, RoundTally(number)).take(fields)
        self._sum.take(fields)
        if self._rounds[number].settled >= self._hosted:
            self._show(number)

    def _show(self, number: int) -> None:
        self.terminal.say(self._rounds.pop(number).line(self._hosted), indent=2)

    def _settle_all(self) -> None:
        for number in sorted(self._rounds):
            self._show(number)

    # ------------------------------------------------------------------------------- the end

    def _end(self, fields: Mapping[str, Any]) -> None:
        """A run is over for one client; when it is for all, say what came of it."""
        self._sum.over.add(str(fields.get("client_id")))
        if len(self._sum.over) < self._hosted:
            return
        self._settle_all()
        how = f"failed, {fields['reason']}" if fields.get("failed") else str(fields["reason"])
        style = "error" if fields.get("failed") else "bold"
        over = how if how.startswith("the run is over") else f"the run is over: {how}"  # for who was dropped
        self.terminal.say([(f"{over}; {self._sum.words}", style)], indent=2)
        self._sum = Sum()
        self._wait("waiting for the next run")

    def _leave(self, reason: str) -> None:
        self._settle_all()
        if reason.startswith(("asked by", "a second")):
            asked = reason.replace("SIGINT", "Ctrl-C")
            self.terminal.tell(f"gone, {asked}; {self._sum.words}. The same command goes on")

    # ------------------------------------------------------------------------------- the moment

    def _wait(self, words: str) -> None:
        self._words = words
        if self._shown:
            self.look(())

    def follow(self, ask: Callable[[], Sequence[Work]]) -> None:
        """Look at the clients again and again, on the running loop, where there is a terminal."""
        if self._shown and self.terminal.moves:
            self._following = asyncio.create_task(self._follow(ask))

    async def _follow(self, ask: Callable[[], Sequence[Work]]) -> None:
        while True:
            self.look(ask())
            await asyncio.sleep(_LOOK_S)

    def look(self, works: Sequence[Work]) -> None:
        """Show what the clients are at now."""
        with self._lock:
            what = f"round {max(work.round for work in works)}" if works else self._words
            if what != self._at:
                self._at, self._since = what, self._clock()
            waited = (f"  {self._clock() - self._since:.0f} s", "dim")
            self.terminal.show([(what, "live"), waited, *_at_work(works)])


def _at_work(works: Sequence[Work]) -> Line:
    if len(works) != 1:
        return [(f"  {len(works)} clients train", "")] if works else []
    steps = f", step {works[0].done:,} of {works[0].total:,}" if works[0].total else ""
    return [(f"  trains{steps}", "")]
