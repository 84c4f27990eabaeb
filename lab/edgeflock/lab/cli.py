"""fl-lab: experiments on one machine. Each command is imported when it is used: help needs no torch."""

from __future__ import annotations

import importlib

import click
from click.shell_completion import CompletionItem

from edgeflock.common.command import log
from edgeflock.common.command.entry import run_command
from edgeflock.common.command.options import unknown

# name: (where the click command stands, what the help says)
_COMMANDS = {
    "run": ("edgeflock.lab.run.command:command", "Run a server and its clients on this machine, to the end."),
    "demo": ("edgeflock.lab.demo:demo", "Kill a client and the server of a run; the model is the same."),
    "compare": (
        "edgeflock.lab.compare.command:compare",
        "Run a grid of methods, seeds ... and compare what they cost.",
    ),
    "fleet": (
        "edgeflock.lab.compare.fleet:fleet",
        "Run a grid on devices that stay, one run after the other.",
    ),
    "testbed": (
        "edgeflock.lab.testbed.command:testbed",
        "Run a grid on emulated devices, each with a core's share, behind one Wi-Fi.",
    ),
    "paper": ("edgeflock.lab.papers.command:paper", "Run a paper's table or figure, beside its own values."),
    "export": (
        "edgeflock.lab.export.command:export",
        "Write a run's model for other programs: safetensors, ONNX ...",
    ),
    "track": ("edgeflock.lab.export.track:track", "Write a run's figures and model for MLflow and others."),
    "tensorboard": (
        "edgeflock.lab.export.track:tensorboard",
        "Write a run's figures as TensorBoard event files.",
    ),
    "report": (
        "edgeflock.lab.report.command:report",
        "Write a report of a run, or of several, as a page and plots.",
    ),
    "features": (
        "edgeflock.lab.export.features_command:features",
        "Draw how a run's models see its test samples, as t-SNE maps.",
    ),
    "partition": ("edgeflock.lab.reference.partition:partition", "Show how a data set is cut into shards."),
    "methods": ("edgeflock.lab.reference.lists:methods", "List the methods, or the options of one."),
    "models": ("edgeflock.lab.reference.lists:models", "List the models."),
    "tasks": ("edgeflock.lab.reference.lists:tasks", "List the tasks, and what each is judged by."),
    "datasets": ("edgeflock.lab.reference.lists:datasets", "List the data sets."),
    "new": ("edgeflock.lab.new.command:new", "Write a package with a method, model ... of your own."),
    "gates": ("edgeflock.lab.cluster.command:gates", "Keep gates of a server on the machines of a cluster."),
    "certs": ("edgeflock.lab.certs.command:certs", "Make certificates for a server and its devices."),
    "dashboard": ("edgeflock.lab.operate.dashboard:dashboard", "Show a run to browsers: going on, or over."),
    "control": ("edgeflock.lab.operate.control:control", "Ask about, pause, resume or stop a run."),
    "runs": ("edgeflock.lab.operate.runs:runs", "List runs, follow them, stop them."),
    "completion": ("edgeflock.lab.completion:completion", "Print what makes a shell complete the commands."),
    "events": ("edgeflock.lab.operate.events:events", "Print the events of a run as JSON lines."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in _COMMANDS:
            raise unknown("command", cmd_name, _COMMANDS)
        module, name = _COMMANDS[cmd_name][0].split(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a name without an import of the commands."""
        fitting = {name: words for name, (_, words) in _COMMANDS.items() if name.startswith(incomplete)}
        named = [CompletionItem(name, help=words) for name, words in fitting.items()]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in _COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="edgeflock", message="%(prog)s %(version)s")
def group() -> None:
    """Experiments with federated learning on one machine."""
    log.configure("warning", "console")  # to stderr, in words: what goes to stdout is the command's own


def main() -> None:
    """Run `fl-lab` and exit."""
    run_command(group, "fl-lab", parks=False)
