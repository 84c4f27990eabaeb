"""fl-lab new: the packages that it writes install with pip and pass their own tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeflock.common.command import extras
from edgeflock.common.errors import BadValue, UnknownName, UsageError
from edgeflock.lab.new.command import new
from edgeflock.lab.new.package import KINDS, NewPackage


def written(folder: Path, kind: str) -> Path:
    """Write a package of that kind, and return its folder."""
    made = NewPackage(kind, f"own-{kind}")
    made.write(folder / made.folder)
    return folder / made.folder


def test_the_command_writes_a_package_and_says_what_comes_next(tmp_path: Path) -> None:
    out = tmp_path / "fl-halved"
    done = CliRunner().invoke(new, ["method", "halved", "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    assert sorted(path.name for path in out.rglob("*.*")) == [
        "fl_halved.py",
        "pyproject.toml",
        "test_fl_halved.py",
    ]
    assert f" install -e {out}, pytest {out}, fl-lab run --method halved" in done.output
    assert shlex.join(extras.installer()) in done.output  # uv's, where an environment has no pip
    project = tomllib.loads((out / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"] == {"edgeflock.methods": {"halved": "fl_halved:METHOD"}}
    with pytest.raises(UsageError, match="is there already: give another --out"):
        NewPackage("method", "halved").write(out)


def test_the_command_that_tries_it_is_one_that_its_kind_understands() -> None:
    assert NewPackage("partition", "mixed").trial == "fl-lab run --partition mixed:0.5"
    assert NewPackage("transform", "noisy").trial == "fl-lab run --augment noisy"
    assert NewPackage("model", "tiny").trial == "fl-lab run --model tiny"


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        (["methods", "x"], UnknownName, "unknown kind of plug-in 'methods': did you mean 'method'"),
        (["method", "Better"], BadValue, "NAME is 'Better', allowed is small letters"),
        (["method", "../up"], BadValue, "NAME is '../up'"),
        (["method", "fedavg"], BadValue, "allowed is a name that no method has yet"),
        (["dataset", "npz"], BadValue, "allowed is a name that no dataset has yet"),
        (["task", "regression"], BadValue, "allowed is a name that no task has yet"),
        (["partition", "iid"], BadValue, "allowed is a name that no partition has yet"),
        (["transform", "flip"], BadValue, "allowed is a name that no transform has yet"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused(
    words: list[str], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        CliRunner().invoke(new, words, catch_exceptions=False)


def test_every_package_installs_and_passes_its_own_quick_tests(tmp_path: Path) -> None:
    _try(tmp_path, "-k", "not run and not trained and not last_bit")


@pytest.mark.long
def test_every_package_passes_all_of_its_own_tests(tmp_path: Path) -> None:
    """With real runs, which take half a minute."""
    _try(tmp_path)


def _try(folder: Path, *chosen: str) -> None:
    site, packages = folder / "site", [written(folder, kind) for kind in KINDS]
    quietly = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(site)]
    _run([*_installer(), *quietly, *map(str, packages)])
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        *chosen,
    ]
    _run([*tests, *map(str, packages)], cwd=folder, PYTHONPATH=str(site))


def _installer() -> list[str]:
    """Return pip, or what stands for it in an environment that has none."""
    asked = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if asked.returncode == 0:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    return [sys.executable, "-m", "uv", "pip"]


def _run(command: list[str], cwd: Path | None = None, **environ: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
