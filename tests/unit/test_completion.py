"""Completion in a shell: names as the product knows them, in a real bash, without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edgeflock.common import listing
from edgeflock.common.command.flags import GroupedOption
from edgeflock.common.models.kit import registry as models
from edgeflock.common.partitions.kit import assign
from edgeflock.common.payload import choice
from edgeflock.lab.completion import completion
from edgeflock.methods.kit import registry
from edgeflock.server.cli import build

# Completes the last of its words as the key would, and says what came.
TAB = """
eval "$(fl-lab completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/')" "$1"
echo "${COMPREPLY[*]}"
"""


def test_names_are_found_as_they_are_known() -> None:
    assert listing.methods() == registry.names()
    assert listing.models() == models.names()


def test_what_is_offered_is_accepted() -> None:
    assert [str(choice.parse(codec)) for codec in listing.codecs()] == listing.codecs()
    assert str(assign.parse("iid")) in listing.partitions()


def answered(*words: str) -> tuple[list[str], str]:
    """Return what fl-server offers for the last word, and which heavy modules that took."""
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*({'torch', 'grpc'} & set(sys.modules)), file=sys.stderr))\n"
        "sys.argv = ['fl-server']\n"
        "from edgeflock.server.cli import main; main()"
    )
    asked = {"COMP_WORDS": " ".join(["fl-server", *words]), "COMP_CWORD": str(len(words))}
    environ = {**os.environ, **asked, "_FL_SERVER_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return [line.removeprefix("plain,") for line in done.stdout.split()], done.stderr.strip()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("--method", "fedp"), ["fedprox"]),
        (("--model", "res"), ["resnet18"]),
        (("--dataset", "fash"), ["fashion-mnist"]),
        (("--participation", "o"), ["online"]),
    ],
)
def test_names_are_offered_without_torch(words: tuple[str, ...], offered: list[str]) -> None:
    assert answered(*words) == (offered, "")


def test_an_option_offers_the_names_that_it_allows_and_no_other_any() -> None:
    command = build()
    asked = click.Context(command)
    options = [param for param in command.params if isinstance(param, GroupedOption)]
    offered = {param.name: [item.value for item in param.shell_complete(asked, "")] for param in options}
    assert offered["participation"] == ["roster", "online"]
    assert "fedavg" in offered["method"]
    assert (offered["rounds"], offered["lr"]) == ([], [])


def test_a_path_is_left_to_the_shell() -> None:
    assert answered("--run-dir", "x")[0] == ["dir,x"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_real_bash_completes(tmp_path: Path) -> None:
    for name in ("server", "client", "lab"):
        script = tmp_path / f"fl-{name}"
        code = f"from edgeflock.{name}.cli import main; main()"
        script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
        script.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", "fl-lab", "run", "--method", "fedp"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("fedprox\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_theirs(shell: str) -> None:
    said = CliRunner().invoke(completion, [shell])
    assert said.exit_code == 0
    assert [
        f"_FL_{name}_COMPLETE={shell}_complete" in said.output for name in ("SERVER", "CLIENT", "LAB")
    ] == [True] * 3
