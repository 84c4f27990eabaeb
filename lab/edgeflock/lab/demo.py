"""fl-lab demo: a run whose client and server are killed with -9 comes to the bits of one without that."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from edgeflock.common.command import extras, signals
from edgeflock.common.command.terminal import Terminal
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.lab.children import Child, Children
from edgeflock.lab.nursery import Nursery
from edgeflock.lab.report import browser
from edgeflock.lab.run.config import LabConfig
from edgeflock.lab.run.experiment import UNTOLD, Experiment, check, check_all, end, forget_if_empty
from edgeflock.server.config import default_run_dir
from edgeflock.server.console.display import Display
from edgeflock.server.console.sentences import sentence
from edgeflock.server.console.summary import model_digest
from edgeflock.server.files.run_dir import require_place
from edgeflock.server.journal.reader import Event, Feed
from edgeflock.server.web.standing import claimed, standing

DATASET, PARTITION, MODEL, EPOCHS = "digits", "dirichlet:0.3", "lenet5", 3
LEAST_ROUNDS = 4  # there has to be something before, between and after the two kills
_VICTIM = 2  # the client whose turn it is
_INTERVAL_S = 0.02
_LONGEST_TEST_S = 0.5


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--method", default="scaffold", metavar="NAME", help="Method; fl-lab methods lists them.")
@click.option("--clients", type=click.IntRange(1, 64), default=4, help="Number of clients.")
@click.option(
    "--rounds", type=click.IntRange(LEAST_ROUNDS), default=20, help="Rounds of each of the two runs."
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where the two runs go.  [runs/TIME-demo]"
)
@click.option(
    "--dashboard", metavar="ADDRESS", help="Where browsers look.  [127.0.0.1:8080, else a free port]"
)
@click.option("--open/--no-open", "opens", default=True, help="Open dashboard and report in a browser.")
@click.pass_context
def demo(
    context: click.Context,
    method: str,
    clients: int,
    rounds: int,
    out: Path | None,
    dashboard: str | None,
    opens: bool,
) -> int:
    """Kill a client and then the server of a run with -9, and show that its model is the same all the same.

    Clients with skewed data, real processes, about a minute with the undisturbed run that it is compared to.
    Ends with exit code 1 if the two models differ.
    """
    extras.require("a report", "jinja2", "matplotlib")
    folder = out or default_run_dir("demo")
    shared = {
        "method": method, "clients": clients, "rounds": rounds,
        "dataset": DATASET, "partition": PARTITION, "model": MODEL, "epochs": EPOCHS,
    }  # fmt: skip
    listener, place = claimed(dashboard)
    signals.on_leaving(signals.interrupt)
    terminal = Terminal(sys.stdout)
    killed = _made(folder)
    try:
        _introduce(terminal, shared)
        with standing(killed, listener, place) as board:
            url = board.url
            _with_kills(terminal, killed, shared, browser.show(url) if opens else url)
            _without(terminal, folder / "undisturbed", shared)
            compare(terminal, killed, folder / "undisturbed")
            _report(terminal, context, killed, opens)
            if terminal.moves:
                _say(terminal, f"The dashboard stays at {url} until Ctrl-C.")
                board.wait()
    finally:
        forget_if_empty(killed, (killed, folder))
    return 0


def _made(folder: Path) -> Path:
    """Return the new directory of the first run. Raises UsageError with a sentence."""
    require_place(folder, "--out")
    killed = folder / "killed"
    try:
        killed.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"--out {str(folder)!r} holds a demo already: give another directory") from None
    except OSError as error:
        raise UsageError(f"--out {str(folder)!r} cannot be made: {error.strerror}") from None
    return killed


# ------------------------------------------------------------------------------------------- the two runs


@dataclass
class WatchedRun:
    """A run of this machine, and its journal as it is being written."""

    experiment: Experiment
    feed: Feed
    quiet: bool
    server: Child
    events: list[Event] = field(default_factory=list)  # all, as they came
    _place: int = 0  # how far `until` has looked

    @property
    def rounds(self) -> int:
        return int(self.experiment.given["rounds"])

    def take(self) -> None:
        """Take what is new in the journal; a round is shown when all is known of it."""
        new, shown = self.feed.read(), self.experiment.shown
        for event in new:
            if not self.quiet:
                shown.take(event.name, event.fields)
            if event.name == "round_opened":
                shown.wait(f"round {event.fields['round']} of {self.rounds} is open")
        self.events += new
        if not new:
            shown.draw()
            check_all(self.server, self.experiment.children)
            time.sleep(_INTERVAL_S)

    def say(self, text: str) -> None:
        _say(self.experiment.shown.terminal, text)

    def until(self, name: str, **fields: object) -> Event:
        """Wait for an event, and return it. Raises EdgeflockError if the run ends before."""
        while True:
            for event in self.events[self._place :]:
                self._place += 1
                if event.name == name and fields.items() <= event.fields.items():
                    return event
                if event.name == "run_ended":
                    raise EdgeflockError(f"the run ended too soon: {sentence(event.name, event.fields)}")
            self.take()

    def catch_up(self) -> None:
        """Show the rounds that are done, also the one whose test is only just being made."""
        end = time.monotonic() + _LONGEST_TEST_S
        while self.experiment.shown.behind and time.monotonic() < end:
            self.take()

    def is_done(self, round: int) -> bool:
        return any(e.name == "round_committed" and e.number("round") == round for e in self.events)

    def when(self, round: int) -> str:
        """Say when a process was killed, as the journal has it."""
        self.take()
        return f"just after round {round}" if self.is_done(round) else f"in the middle of round {round}"

    def start_server_again(self) -> None:
        self.server = self.experiment.start_server()
        check(self.server)


@contextlib.contextmanager
def _stage(
    terminal: Terminal, run_dir: Path, shared: Mapping[str, Any], lab: LabConfig, *, quiet: bool = False
) -> Iterator[WatchedRun]:
    """Start a run's server; none of its processes outlives the block."""
    with (
        Children(nursery=Nursery.open("fl-client")) as children,
        contextlib.closing(Feed(run_dir)) as feed,
        contextlib.closing(Display(terminal, UNTOLD)) as shown,
    ):
        experiment = Experiment(run_dir, shared, lab, children, shown)
        server = experiment.start_server()
        check(server)
        config = experiment.config()
        shown.expect(config.rounds, config.eval_every)
        yield WatchedRun(experiment, feed, quiet, server)


def _with_kills(terminal: Terminal, run_dir: Path, shared: Mapping[str, Any], watch: str) -> None:
    """Hold the run in which a client and then the server are killed."""
    with _stage(terminal, run_dir, shared, LabConfig()) as stage:
        stage.say(f"The dashboard: {watch}")
        _begin(stage)
        _kill_client(stage, min(_VICTIM, int(shared["clients"]) - 1), max(2, stage.rounds // 4))
        _kill_server(stage, max(3, stage.rounds // 2))
        _finish(stage)


def _begin(stage: WatchedRun) -> None:
    stage.experiment.shown.wait("the clients start")
    stage.experiment.start_clients(stage.server)


def _finish(stage: WatchedRun) -> None:
    stage.until("run_ended")
    end(stage.experiment.children)


def _kill_client(stage: WatchedRun, number: int, round: int) -> None:
    name, children = f"c{number}", stage.experiment.children
    stage.until("round_opened", round=round)
    victim = next(child for child in children.all if child.name == f"fl-client {name}")
    children.kill(victim)
    stage.catch_up()
    stage.say(f"kill -9 of client {name}, process {victim.process.pid}, {stage.when(round)}.")
    stage.until("client_left", client=name)
    stage.say(f"The server sees that {name} is gone; the round waits for it.")
    stage.experiment.start_client(number)
    stage.until("client_joined", client=name)
    stage.say(
        f"Started again on what lies on its disk: {name} is back, and trains its part of the round anew."
    )


def _kill_server(stage: WatchedRun, round: int) -> None:
    stage.until("round_opened", round=round)
    stage.catch_up()
    while stage.is_done(round) and round + 1 < stage.rounds:  # it was too short for that
        round += 1
        stage.until("round_opened", round=round)
    stage.experiment.children.kill(stage.server)
    stage.say(
        f"kill -9 of the server, process {stage.server.process.pid}, {stage.when(round)}. "
        "It is gone; the dashboard says so. Its clients wait and try again by themselves."
    )
    stage.start_server_again()
    started = stage.until("run_started")
    stage.say(
        f"Started again: {started.fields['round']} rounds are on its disk, it goes on with the next one."
    )


def _without(terminal: Terminal, run_dir: Path, shared: Mapping[str, Any]) -> None:
    """Hold the same run with nobody killed."""
    _say(
        terminal,
        "Now the same run with nobody killed, its clients in two processes, which does not matter either.",
    )
    lab = LabConfig(processes=min(2, int(shared["clients"])))
    with _stage(terminal, run_dir, shared, lab, quiet=True) as stage:
        _begin(stage)
        _finish(stage)


# --------------------------------------------------------------------------------------------- what is said


def _introduce(terminal: Terminal, shared: Mapping[str, Any]) -> None:
    from edgeflock.common.datasets.kit import registry as datasets
    from edgeflock.lab.reference import partition_chart
    from edgeflock.lab.reference.partition_rows import describe

    _say(
        terminal,
        f"{shared['clients']} clients train one model together with {shared['method']}, "
        "each on digits of its own that nobody else sees:",
    )
    loaded = datasets.load(DATASET, None)
    partition_chart.show(
        describe(loaded, partition=PARTITION, clients=shared["clients"], seed=0, samples_per_client=0)
    )
    _say(terminal, "First a run in which a client and then the server are killed with -9.")


def compare(terminal: Terminal, killed: Path, undisturbed: Path) -> None:
    """Lay the two models side by side. Raises EdgeflockError if they differ."""
    found, wanted = model_digest(killed), model_digest(undisturbed)
    _say(terminal, "SHA-256 of the two models:")
    terminal.say([(f"killed       {found}", "")])
    terminal.say([(f"undisturbed  {wanted}", "")])
    if found != wanted:
        raise EdgeflockError(
            f"the models differ, which is a bug: {killed} and {undisturbed} hold the two runs"
        )
    _say(terminal, "The same model, bit for bit: the kills have cost some seconds and nothing else.")


def _report(terminal: Terminal, context: click.Context, run_dir: Path, opens: bool) -> None:
    from edgeflock.lab.report.command import report

    _say(terminal, "What it cost, and who did what, as fl-lab report tells it:")
    context.invoke(report, run=(run_dir,), out=None, data_root=None, opened=opens)


def _say(terminal: Terminal, text: str) -> None:
    terminal.say(())
    terminal.say([(text, "bold")])
