"""The story of a run: one sentence for each of its events. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from edgeflock.common.command.crowd import each_with, everybody, is_crowd, some
from edgeflock.common.command.terminal import safe
from edgeflock.common.scores import figure_told
from edgeflock.server.journal.reader import Event

_SENTENCES: dict[str, str] = {
    "run_started": "the server starts: method {method}, {round} of {rounds} rounds are done",
    "classes_held": "{reason}",
    "client_joined": "{client} joins ({machine}, {system})",
    "client_left": "{client} is gone",
    "client_leaving": "{client} leaves: {reason}",
    "client_ready": "{client} is ready with {samples} samples in seat {seat}",
    "clients_seated": "seats are given to {clients}",
    "gate_came": "gate {gate} is here, at {address}",
    "gate_left": "gate {gate} is gone: its clients go to others",
    "round_opened": "round {round} opens for {cohort}",
    "round_extended": "round {round} is short of updates: it gets another deadline, and {added}",
    "clients_missed": "round {round} goes on without {clients}, away for longer than {grace_s:g} s",
    "last_round_opened": "training is over: {cohort} are asked once more, in round {round}",
    "task_refused": "{client} refuses its task of round {round}: {reason}",
    "updates_rejected": "round {round}: updates are rejected: {clients}",
    "client_quarantined": (
        "{client} is in quarantine up to round {until}: {refused} bad updates by now, the last one {reason}"
    ),
    "client_released": "{client} takes part again: {reason}",
    "client_added": "{client} is given seat {seat} by an operator, in round {round}",
    "client_dropped": "{client} is dropped from seat {seat} by an operator, in round {round}",
    "client_replaced": "{client} is given seat {seat} of {before} by an operator, in round {round}",
    "refused": "{client} is refused ({times} so far): {sentence}",
    "evaluated": "round {round}: the {model} model has {judged}",
    "evaluation_failed": "round {round}: its models cannot be tested: {reason}",
    "run_paused": "round {round}: the run pauses: {reason}",
    "run_resumed": "round {round}: the run goes on",
    "pause_asked": "round {round}: an operator asks for a pause",
    "run_parked": "round {round}: the server goes away and leaves the round as it is",
    "run_broken": "round {round}: the server cannot go on: {reason}",
    "epoch_raised": "what came after round {round} is lost: the run goes on from there in epoch {epoch}",
    "caution": "{reason}",
    "operations_not_counted": "{reason}",
    "code_differs": "{client}: {reason}",
    "certificate": "the server's certificate {reason}",
    "budget_unmeasured": "round {round}: {reason}",
    "round_cut": "round {round} is closed now, with the updates of {counted}: {reason}",
    "round_discarded": "round {round} is discarded: {reason}",
    "run_ended": "the run is over after round {round} ({kind}): {reason}",
}
COMINGS = {  # what many clients do at a time
    "client_joined": "join",
    "client_ready": "are ready",
    "client_left": "are gone",
    "client_leaving": "leave",
}
_COMMITTED = {"round_committed": "round {round} is done", "last_round_committed": "the closing task is done"}


def lines(events: Iterable[Event]) -> Iterator[str]:
    """Yield the lines of a story; a crowd that comes or goes at a time is told of together."""
    for coming, several in groupby(events, lambda event: event.name in COMINGS):
        found = list(several)
        yield from _together(found) if coming and is_crowd(found) else map(line, found)


def line(event: Event) -> str:
    """Return when it happened (UTC) and what."""
    return _at(event, sentence(event.name, event.fields))


def _at(event: Event, words: str) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(event.at))}  {words}"


def _together(events: Sequence[Event]) -> Iterator[str]:
    for name, doing in COMINGS.items():
        if found := [event for event in events if event.name == name]:
            names = dict.fromkeys(str(event.fields.get("client")) for event in found)
            yield _at(found[0], safe(f"{some([*names])} {doing}")) if len(found) > 1 else line(found[0])


def is_known(name: str) -> bool:
    return name in _SENTENCES or name in _COMMITTED


def sentence(name: str, fields: Mapping[str, Any]) -> str:
    """Return what happened; of an event that this version does not know, its name and fields."""
    words = {key: _word(value) for key, value in fields.items()}
    try:
        if name == "evaluated":
            words["judged"] = _judged(fields)
        if name in _COMMITTED:
            return safe(_committed(_COMMITTED[name].format(**words), fields))
        return safe(_SENTENCES[name].format(**words))
    except (KeyError, ValueError, TypeError):
        return safe(" ".join([name, *(f"{key}={value}" for key, value in words.items())]))


def _judged(fields: Mapping[str, Any]) -> str:
    """Return what a model is judged by, and its loss."""
    names = dict.fromkeys((figure_told(fields).name, "loss"))
    return ", ".join(f"{name} {fields[name]:.4f}" for name in names)


def _committed(done: str, fields: Mapping[str, Any]) -> str:
    """Name who did not count, and why: late, not finite, refused."""
    loss = f", training loss {fields['loss']:.4f}" if "loss" in fields else ""
    text = f"{done}: {fields['counted']} updates count{loss}"
    missed = fields.get("not_counted")
    return f"{text}; not counted: {_word(missed)}" if missed else text


def _word(value: Any) -> Any:
    """Return a value as it stands in a sentence; of a crowd some are named, or why is counted."""
    if isinstance(value, Mapping):
        return each_with(value)
    if isinstance(value, list):
        return everybody([*map(str, value)]) or "nobody"
    return value
