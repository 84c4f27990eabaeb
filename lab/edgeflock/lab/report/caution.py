"""Why another run with a report's commands may not have the same bits, as far as the journal knows."""

from __future__ import annotations

import re

from edgeflock.common.command.units import counted
from edgeflock.common.verdict import Verdict
from edgeflock.lab.history import History

_USED_UP = re.compile(r"the budget of (\w+)")
_BETWEEN_ROUNDS = "leaves no room"  # so ends a budget of bytes that no message has used up
_BY_CHANCE = (Verdict.LATE, Verdict.REFUSED_BY_CLIENT, Verdict.QUARANTINED)


def caution(history: History) -> str:
    """Return it in sentences, nothing if all is as the promise of the same bits wants it."""
    reasons = (_steering(history), _budget(history), _absence(history), _online(history), _hardware(history))
    return " ".join(filter(None, reasons))


def _steering(history: History) -> str:
    if history.config.budget and any("tau" in round.metrics for round in history.training):
        return "Its method steers by what is left of the budgets: no two runs of it are the same."
    return ""


def _budget(history: History) -> str:
    reason = history.ending.reason if history.ending is not None else ""
    found = _USED_UP.search(reason)
    if found is None or _BETWEEN_ROUNDS in reason:
        return ""
    rounds = counted(len(history.training), "round")
    return (
        f"Its budget of {found[1]} ended it after {rounds}, which no two runs use up at the same moment: "
        f"--rounds={len(history.training)} in place of the budgets holds the same rounds, "
        "but for a training that a budget has cut short."
    )


def _absence(history: History) -> str:
    short = [
        round for round in history.training if round.committed and any(map(round.verdicts.get, _BY_CHANCE))
    ]
    if not short:
        return ""
    why = ", ".join(verdict for verdict in _BY_CHANCE if any(round.verdicts.get(verdict) for round in short))
    return f"In {counted(len(short), 'round')} somebody did not count ({why}): who does is up to the moment."


def _online(history: History) -> str:
    online = history.config.participation == "online"
    return "Its cohorts were drawn from who was online." if online else ""


def _hardware(history: History) -> str:
    devices = [client.device for client in history.clients]
    threads = [device.get("threads") for device in devices]
    elsewhere = any(device.get("compute") not in (None, "", "cpu") for device in devices)
    if elsewhere or any(isinstance(number, int) and number > 1 for number in threads):
        return "Not every client trained on a CPU with one thread, as the same bits need."
    return ""
