"""A run that no server serves now: how it ended or how it goes on, and its status in words."""

from __future__ import annotations

import shlex
from pathlib import Path

from edgeflock.common.command.terminal import safe
from edgeflock.lab.history import Client, History
from edgeflock.lab.operate.roll import Present, called
from edgeflock.lab.run.config import FILE
from edgeflock.server.console.summary import model_digest


def how_to_go_on(run_dir: Path) -> str:
    """Return the command that takes the run up again; fl-lab starts its clients, too."""
    program = "fl-lab run" if (run_dir / FILE).exists() else "fl-server"
    return f"{program} --run-dir {shlex.quote(str(run_dir))}"


def ending(history: History) -> str:
    """Return how a run ended that is over."""
    assert history.ending is not None
    return safe(": ".join(filter(None, (history.ending.kind, history.ending.reason))))


def words(history: History, find: str = "") -> str:
    """Return the status as lines for people, as a living server would tell it."""
    run_dir, config = history.run_dir, history.config
    over = history.ending is not None
    rows = [
        ("run", f"{history.run_id} in {run_dir}"),
        ("method", config.method),
        ("state", f"finished ({ending(history)})" if over else "interrupted (its server is not running)"),
        ("round", f"{len(history.training)} of {config.rounds}"),
        ("clients", f"{len(history.clients)} had a seat" if history.clients else "none has come yet"),
        ("result" if over else "so far", _judged(history)),
    ]
    if digest := model_digest(run_dir):
        rows.append(("model", f"{run_dir / 'model.safetensors'}, SHA-256 {digest}"))
    clients = called([*map(_present, history.clients)], find, "no update")
    return "\n".join([*(f"{name:<8} {text}" for name, text in rows), *clients])


def _judged(history: History) -> str:
    """Return how good the model is now, and was at best."""
    curve, best, name = history.curve(), history.best(), history.figure.name
    if best is None:
        return f"no {name} was tested"
    newest = curve[-1].evaluation.value
    return f"{name} {newest:.4f}, best {best.evaluation.value:.4f} in round {best.round}"


def _present(client: Client) -> Present:
    said = [f"{times} {name.replace('_', ' ')}" for name, times in client.verdicts.items()]
    missed = sum(times for name, times in client.verdicts.items() if name != "counted")
    tally = {name.replace("_", " "): times for name, times in client.verdicts.items()}
    return Present(client.name, client.seat, client.samples, said, tally, missed, client.device)
