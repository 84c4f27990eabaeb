"""The commands as they are started: help without torch, one sentence for every misuse."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import click
import pytest

from edgeflock.client.cli import build as client
from edgeflock.common.command.flags import GroupedCommand
from edgeflock.lab.run.command import command as lab_run
from edgeflock.server.cli import build as server

COMMANDS = ["server", "client", "lab"]
HEAVY = ("torch", "grpc", "numpy", "google.protobuf")
_ENTRY = "from edgeflock.{}.cli import main; main()"


def run(command: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FL_")}
    return subprocess.run(
        [sys.executable, "-c", _ENTRY.format(command), *arguments],
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


_TELLING = """
import atexit, os, sys
leave = os._exit  # how a command ends, past atexit
def tell(code=None):
    print("imported", *(name for name in {heavy!r} if name in sys.modules), file=sys.stderr, flush=True)
    if code is not None:
        leave(code)
os._exit = tell
atexit.register(tell)
sys.argv = {arguments!r}
"""


def imported(command: str, *arguments: str, **environ: str) -> set[str]:
    """Return what a command had imported of the heavy modules, and of click, when it ended."""
    script = _TELLING.format(heavy=("click", *HEAVY), arguments=[f"fl-{command}", *arguments])
    done = subprocess.run(
        [sys.executable, "-c", script + _ENTRY.format(command)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return set(done.stderr.splitlines()[-1].split()) - {"imported"}


@pytest.mark.parametrize(
    "arguments",
    [("server", "--help"), ("client", "--help"), ("lab", "--help")]
    + [("lab", command, "--help") for command in ("run", "dashboard", "compare", "export", "track")],
)
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) == {"click"}


@pytest.mark.parametrize("command", ["demo", "control"])
def test_help_of_what_speaks_grpc_imports_no_torch(command: str) -> None:
    assert "torch" not in imported("lab", command, "--help")


@pytest.mark.parametrize(
    "arguments",
    [
        ("server", "--rouds", "3"),
        ("client", "--sever", "x"),
        ("lab", "run", "--rouds", "3"),
        ("lab", "rnu"),
    ],
)
def test_a_refused_flag_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) == {"click"}


@pytest.mark.parametrize(("command", "words"), [("server", "--method f"), ("client", "--l"), ("lab", "r")])
def test_completion_imports_nothing_heavy(command: str, words: str) -> None:
    environ = {
        f"_FL_{command.upper()}_COMPLETE": "bash_complete",
        "COMP_WORDS": f"fl-{command} {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    assert imported(command, **environ) == {"click"}


def test_help_is_there_at_once() -> None:
    """At most 0.4 s of CPU time above the bare interpreter: what a person waits for on an idle machine."""

    def spent(work: Callable[[], object]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        work()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    bare = min(spent(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(5))
    assert min(spent(lambda: run("client", "--help")) for _ in range(5)) - bare < 0.4


def test_help_groups_options_and_shows_defaults() -> None:
    text = run("server", "--help").stdout
    assert "Local training:\n" in text
    assert "[default: 20]" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_version_is_said(command: str) -> None:
    done = run(command, "--version")
    assert done.stdout.startswith(f"fl-{command} 0.")


MISUSES = [
    ("server", ["--rouds", "3"], "unknown option --rouds, did you mean --rounds?"),
    ("server", ["--rounds"], "option '--rounds' requires an argument"),
    ("server", ["--rounds", "0"], "--rounds is '0', allowed is an integer >= 1"),
    ("server", ["--lr", "nan"], "--lr is 'nan', allowed is a number >= 0"),
    ("server", ["--deadline", "soon"], "--deadline is 'soon', allowed is a time"),
    ("server", ["--config", "no-such.toml"], "cannot read the configuration file 'no-such.toml'"),
    ("server", ["extra"], "got unexpected extra argument (extra)"),
    ("server", ["--method", "fedavgg"], "unknown method 'fedavgg': did you mean 'fedavg'?"),
    ("server", ["--listen", "0.0.0.0:1"], "--listen 0.0.0.0:1 reaches beyond this machine"),
    (
        "server",
        ["--method", "fedprox", "--mu", "0.1"],
        "unknown option --mu, an option of fedprox: give --set",
    ),
    (
        "server",
        ["--mu", "0.1"],
        "unknown option --mu, an option of fedprox, fedtrip, moon, not of fedavg: give --method fedprox",
    ),
    (
        "server",
        ["--budget", "500MB"],
        "--budget is '500MB', allowed is time=60s, bytes=500MB, cpu=2h or energy=50kJ",
    ),
    ("server", ["--target", "accuracy"], "--target is 'accuracy', allowed is accuracy=X\n"),
    ("server", ["--target", "0.9"], "--target is '0.9', allowed is accuracy=X: give --target accuracy=0.9"),
    (
        "lab",
        ["run", "--method=fedprox", "--mu=0.3"],
        "unknown option --mu, an option of fedprox: give --set mu=0.3",
    ),
    ("client", ["--sever", "x"], "unknown option --sever, did you mean --server?"),
    ("client", ["--server", "x"], "--server is 'x', allowed is host:port"),
    ("client", ["--id", "a/b"], "--id is 'a/b', allowed is 1 to 64 letters"),
    ("client", ["--host-clients", "1e3"], "--host-clients is '1e3', allowed is an integer"),
    ("client", ["--data", "no-such.npz"], "--data 'no-such.npz' does not exist"),
    ("lab", ["rnu"], "unknown command: rnu, did you mean run?"),
    ("lab", ["run", "--proceses", "2"], "unknown option --proceses, did you mean --processes?"),
    ("lab", ["run", "--processes", "0"], "--processes is '0', allowed is an integer from 1"),
    ("lab", ["events", "no-such-run"], "no-such-run is not a run directory"),
    ("lab", ["control", "no-such-run", "status"], "no-such-run is not a run directory: it does not exist"),
    ("lab", ["methods", "fedproks"], "unknown method 'fedproks': did you mean 'fedprox'?"),
]


@pytest.mark.parametrize(("command", "arguments", "sentence"), MISUSES)
def test_a_misuse_is_one_sentence_and_exit_code_2(command: str, arguments: list[str], sentence: str) -> None:
    done = run(command, *arguments)
    assert done.stderr.startswith(f"fl-{command}: error: {sentence}")
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")


def test_a_misspelt_variable_is_refused() -> None:
    done = run("client", FL_CLIENT_SERVR="x")
    assert done.stderr.startswith(
        "fl-client: error: unknown environment variable: FL_CLIENT_SERVR, did you mean"
    )
    assert done.returncode == 2


def test_the_configuration_file_may_be_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("rouds = 3\n")
    done = run("server", FL_SERVER_CONFIG=str(file))
    assert done.stderr == f"fl-server: error: unknown key in {file}: rouds, did you mean rounds?\n"


def test_the_options_of_a_method_are_explained() -> None:
    text = run("server", "--method", "fedprox", "--help-method").stdout
    assert "strength of the proximal term" in text
    assert "default 0.1, allowed is a number >= 0" in text


# ---------------------------------------------------------------------------------------- the top of the help

GUIDED = [("fl-server", server()), ("fl-client", client()), ("fl-lab run", lab_run)]


@pytest.mark.parametrize(("name", "made"), GUIDED, ids=[name for name, _ in GUIDED])
def test_help_begins_with_three_examples_and_the_eight_options_that_matter(
    name: str, made: click.Command
) -> None:
    guide = cast("GroupedCommand", made).guide
    assert (len(guide.examples), len(guide.first)) == (3, 8)
    text = made.get_help(click.Context(made, info_name=name, terminal_width=80))
    assert max(map(len, text.splitlines())) <= 80
    first = text.partition("What matters most:\n")[2].partition("\n\n")[0]
    flags = re.findall(r"^  (--[a-z-]+)", first, re.M)
    assert flags == [f"--{option.replace('_', '-')}" for option in guide.first]
    assert text.index("Examples:") < text.index("What matters most:")


@pytest.mark.parametrize(("name", "made"), GUIDED, ids=[name for name, _ in GUIDED])
def test_the_examples_of_the_help_are_commands(name: str, made: click.Command) -> None:
    for _, line in cast("GroupedCommand", made).guide.examples:
        assert line.startswith(f"{name} ")
        made.make_context(name, shlex.split(line.replace("\\\n", ""))[len(name.split()) :])


def as_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "edgeflock", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_the_commands_are_there_where_their_scripts_are_not_on_the_path() -> None:
    assert as_module("client", "--version").stdout.startswith("fl-client 0.")
    listed = as_module()
    assert listed.returncode == 0
    assert [f"python -m edgeflock {name}" in listed.stdout for name in COMMANDS] == [True] * 3
    wrong = as_module("sever")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "edgeflock: error: unknown command: sever, known are server, client, lab\n",
    )
