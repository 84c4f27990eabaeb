"""The units of deploy/systemd: systemd understands them, their commands too, and stops are long enough."""

from __future__ import annotations

import configparser
import shlex
import subprocess
from pathlib import Path
from shutil import which

import click
import pytest

from edgeflock.client import cli as client
from edgeflock.server import cli as server
from edgeflock.server.config import ServerConfig

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
COMMANDS = {"edgeflock-client@.service": client.build, "edgeflock-server@.service": server.build}
CLIENTS_DRAIN_S = 9.0  # docs/reliability.md


def service(unit: str) -> configparser.SectionProxy:
    """Return the section [Service]; of a key that is there twice the last value."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / unit)
    return parser["Service"]


def start(unit: str) -> list[str]:
    return shlex.split(service(unit)["ExecStart"].replace("%d", "/credentials").replace("%i", "device-a"))


def seconds(unit: str) -> float:
    return float(service(unit)["TimeoutStopSec"].removesuffix("s"))


def test_there_is_a_unit_for_each_end() -> None:
    assert sorted(path.name for path in UNITS.iterdir()) == sorted(COMMANDS)


@pytest.mark.parametrize("unit", COMMANDS)
def test_a_unit_starts_its_command_with_flags_that_it_knows(unit: str) -> None:
    program, *flags = start(unit)
    command = COMMANDS[unit]()
    assert Path(program).name == command.name
    known = {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}
    assert {flag for flag in flags if flag.startswith("--")} <= known


@pytest.mark.parametrize("unit", COMMANDS)
def test_a_mistake_in_the_options_is_not_tried_again(unit: str) -> None:
    assert service(unit)["Restart"] == "on-failure"
    assert service(unit)["RestartPreventExitStatus"] == "2"


@pytest.mark.parametrize(
    ("unit", "drain_s"),
    [
        ("edgeflock-client@.service", CLIENTS_DRAIN_S),
        ("edgeflock-server@.service", ServerConfig().drain_timeout),
    ],
)
def test_a_stop_is_not_cut_short(unit: str, drain_s: float) -> None:
    assert seconds(unit) > drain_s + 3


@pytest.mark.parametrize("unit", COMMANDS)
def test_no_call_of_a_library_kills_it(unit: str) -> None:
    """A filter without an error number does; W^X is the end of every convolution on x86-64."""
    assert service(unit)["SystemCallErrorNumber"] == "EPERM"
    assert "MemoryDenyWriteExecute" not in service(unit)


@pytest.mark.parametrize("unit", COMMANDS)
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path, unit: str) -> None:
    if which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (UNITS / unit).read_text()
    (tmp_path / unit).write_text(text.replace(start(unit)[0], "/bin/true"))
    verify = ["systemd-analyze", "verify", str(tmp_path / unit)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", COMMANDS)
def test_it_is_exposed_as_little_as_systemd_calls_ok(unit: str) -> None:
    if which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    judge = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(UNITS / unit)]  # tenths
    done = subprocess.run(judge, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze is older than 250")
    assert done.returncode == 0, done.stdout[-200:]
