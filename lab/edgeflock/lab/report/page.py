"""The page of a report: everything in one HTML file, which loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import jinja2

from edgeflock.common.command.units import UNKNOWN, counted
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.history import History
from edgeflock.lab.plots import theme
from edgeflock.lab.plots.album import Album, Plot
from edgeflock.lab.report import plots, tables
from edgeflock.lab.report.caution import caution
from edgeflock.lab.report.headline import sentence, title
from edgeflock.lab.report.key_figures import figures
from edgeflock.lab.report.limits import limits
from edgeflock.lab.report.names import differences
from edgeflock.lab.report.repeat import commands
from edgeflock.lab.report.subject import Subject
from edgeflock.server.console import caution as console
from edgeflock.server.console.caution import ModelTest
from edgeflock.server.console.summary import model_digest
from edgeflock.server.files.run_toml import to_toml


@dataclass(frozen=True)
class Chapter:
    """One run on the page."""

    subject: Subject
    sentence: str  # what was run
    limits: list[str]  # what it was to reach and might use, and how far it came
    warning: str  # what somebody should hear before using the last model
    figures: list[tuple[str, str, str]]
    costs: list[Plot]
    closing: str  # what the last bar of its plots is, if it is no round
    data: list[Plot]
    missing: list[str]  # what cannot be shown, and why
    recalls: list[tuple[int, str]]  # of each class
    bundles: tables.Table | None
    spreads: tables.Table | None  # of many clients
    clients: tables.Table | None
    devices: tables.Table | None
    digest: str
    commands: str
    caution: str  # why these may not give the same bits
    toml: str


def render(subjects: Sequence[Subject], album: Album) -> str:
    """Draw the plots and return the page."""
    histories = [subject.history for subject in subjects]
    names = [subject.name for subject in subjects]
    differing = differences([h.config for h in histories], [subject.given for subject in subjects])
    changed = [", ".join(f"{k} {v}" for k, v in mine) for mine in differing]
    return fill(
        "page.html.j2",
        title=title(histories[0]) if len(names) == 1 else f"{len(names)} runs",
        strokes=[theme.stroke(subject.number) for subject in subjects],
        names=names,
        runs=tables.runs(subjects, changed),
        reached=tables.reached(histories, names),
        judged=plots.judged(history.figure for history in histories),
        curves=plots.overlaid(album, subjects),
        totals=plots.totals(album, subjects),
        methods=plots.of_methods(album, subjects),
        chapters=[chapter(album, subject) for subject in subjects],
    )


def fill(template: str, **values: Any) -> str:
    """Return a page made of a template."""
    here = files("edgeflock.lab.report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (here / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return environment.get_template(template).render(
        css=(here / "page.css").read_text("utf-8"),
        dark=theme.dark_rules(),
        version=version("edgeflock"),
        **values,
    )


def chapter(album: Album, subject: Subject) -> Chapter:
    history, exam = subject.history, subject.exam.value
    missing = [
        f"{what}: {found.reason}."
        for what, found in (("Labels of the clients", subject.labels), ("Confusion matrix", subject.exam))
        if found.value is None
    ]
    if exam is not None and exam.journalled is not None and abs(exam.accuracy - exam.journalled) > 5e-4:
        missing.append(
            f"The confusion matrix has accuracy {exam.accuracy:.4f}, the run found {exam.journalled:.4f}: "
            "other test data, or another kind of machine."
        )
    digest, unread = _digest(history)
    told, untold = _commands(subject)
    missing += unread + untold
    recalls = enumerate(exam.recalls if exam is not None else [])
    return Chapter(
        subject=subject,
        sentence=sentence(history),
        limits=limits(history),
        warning=warning(history),
        figures=figures(history),
        costs=plots.by_round(album, subject),
        closing=_closing(history),
        data=plots.of_data(album, subject),
        missing=missing,
        recalls=[(number, UNKNOWN if share is None else f"{share:.3f}") for number, share in recalls],
        bundles=tables.bundles(history),
        spreads=tables.spreads(history),
        clients=tables.clients(history),
        devices=tables.devices(history),
        digest=digest,
        commands=told,
        caution=caution(history),
        toml=to_toml(replace(history.config, data_root=None)),
    )


def warning(history: History) -> str:
    """Return what is wrong with the last model, with the way to the best one; nothing if nothing is."""
    tests = [
        ModelTest(point.round, point.evaluation.value, point.evaluation.loss) for point in history.curve()
    ]
    failed = history.failed_tests
    untested = f"{counted(failed, 'test')} of its models failed." if failed else ""
    found = console.caution(tests, history.figure)
    if found is None:
        return untested
    best = found.best
    way = f"; fl-lab export RUN --which best takes that of round {best.round}" if best else ""
    return f"{found.words}{way}. {untested}".rstrip()


def _closing(history: History) -> str:
    """Return what follows the last round of training, if anything does."""
    if not history.rounds or not history.rounds[-1].last:
        return ""
    return f"Round {history.rounds[-1].number} is the closing task, after the last round of training."


def _digest(history: History) -> tuple[str, list[str]]:
    """Return the SHA-256 of the final model, or why it cannot be told."""
    try:
        return model_digest(history.run_dir), []
    except OSError as error:
        return "", [f"SHA-256 of the final model: {error.filename} cannot be read: {error.strerror}."]


def _commands(subject: Subject) -> tuple[str, list[str]]:
    """Return the commands that hold the run again, or why they cannot be told."""
    try:
        return commands(subject.history, subject.given), []
    except EdgeflockError as error:
        return "", [f"The command that repeats it: {error}."]
