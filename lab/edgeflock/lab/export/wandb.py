"""A run's options, figures and model in Weights & Biases, or in files for it where there is no key."""

from __future__ import annotations

import netrc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab import history
from edgeflock.lab.export import tracked
from edgeflock.lab.export.feed import scalars
from edgeflock.server.journal.reader import Event

_STEP = "round"


class WandbTrouble(EdgeflockError):
    """Weights & Biases has refused something, or cannot be reached."""


class WandbRun:
    """One run in Weights & Biases, under the run's own id: whoever goes on with it goes on there."""

    def __init__(self, run_dir: Path, place: Path) -> None:
        self._run_dir, self._place = run_dir, place
        self._note: dict[str, Any] = {"cursor": 0, **tracked.read_note(place)}
        self._made: Any = None
        self._figures: list[dict[str, float]] = []
        self.words = str(place)

    @property
    def cursor(self) -> int:
        """The last event of the run that was given away."""
        return int(self._note["cursor"])

    def add(self, event: Event) -> int:
        """Take the figures of an event and return how many there were."""
        if found := dict(scalars(event)):
            self._figures.append({_STEP: event.number("round") or 0, "_timestamp": event.at, **found})
        return len(found)

    def keep(self, cursor: int) -> None:
        """Give away what was added, and note how far that is."""
        with _trouble():
            run = self._run()
            for figures in self._figures:
                run.log(figures)
        self._figures.clear()
        self._note |= {"cursor": cursor, "concluded": False}
        tracked.write_note(self._place, self._note)

    def conclude(self) -> None:
        """Of a run that is over, say what it cost in all, and give its model."""
        import wandb

        ending, totals = tracked.ending(self._run_dir)
        if ending is None or self._note.get("concluded", True):
            return
        with _trouble(), tracked.final_model(self._run_dir) as model:
            run = self._run()
            run.summary.update({**totals, "ended": ending.kind, "reason": ending.reason})
            if model is not None:
                artifact = wandb.Artifact(f"model-{run.id}", "model")
                artifact.add_file(str(model), policy="immutable")
                run.log_artifact(artifact)
            run.finish()
            self._made = None
        self._note |= {"concluded": True}
        tracked.write_note(self._place, self._note)

    def close(self) -> None:
        """Let what was given away arrive."""
        if self._made is not None:
            self._made.finish()

    def _run(self) -> Any:
        import wandb

        if self._made is None:
            heading, mode = tracked.heading(self._run_dir), _mode()
            self._made = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or heading.group,
                name=heading.name,
                id=history.read(self._run_dir).run_id,
                resume="allow",
                dir=str(self._place),
                mode=mode,
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
            self._made.config.update(dict(heading.options), allow_val_change=True)
            self._made.define_metric("*", step_metric=_STEP)
            folder = Path(self._made.dir).parent
            sync = f"{folder}; send them with: wandb sync {folder}"
            self.words = str(self._made.url) if mode == "online" else sync
        return self._made


def _mode() -> Any:
    """Return what WANDB_MODE says; without it, and without a key, files that can be sent later."""
    return os.environ.get("WANDB_MODE") or ("online" if _has_key() else "offline")


def _has_key() -> bool:
    """Whether there is a key, in its variable or where `wandb login` writes it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


@contextmanager
def _trouble() -> Iterator[None]:
    """Say in a sentence what Weights & Biases does not do; what it raises is of several libraries."""
    try:
        yield
    except EdgeflockError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise WandbTrouble(f"Weights & Biases says {type(error).__name__}: {first}") from error
