"""What an extra brings and is not there: one sentence, with the line that installs it where one stands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path

import pytest

from edgeflock.common.command import extras, typed
from edgeflock.common.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
_BLOCKED = "import sys; sys.modules.update(dict.fromkeys({!r})); from edgeflock.{}.cli import main; main()"
_PACKAGES = {
    "sklearn": "scikit-learn",
    "grpc_reflection": "grpcio-reflection",
    "PIL": "torchvision",
}


def without(modules: tuple[str, ...], command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as if these modules were not installed."""
    script = _BLOCKED.format(modules, command)
    words = [sys.executable, "-c", script, *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_every_module_stands_under_the_extra_that_brings_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {extra: " ".join(lines) for extra, lines in project["optional-dependencies"].items()}
    wrong = {
        m: e for m, e in extras.EXTRAS.items() if _PACKAGES.get(m, m.replace("_", "-")) not in brought[e]
    }
    assert wrong == {}


def test_no_module_of_an_extra_is_imported_where_a_command_would_need_it() -> None:
    """A daemon, and all help, with nothing but the base."""
    everything = tuple(extras.EXTRAS)
    for command in ("server", "client", "lab"):
        assert without(everything, command, "--help").returncode == 0
    for words in (["methods"], ["models"], ["datasets"], ["partition"]):
        done = without(everything, "lab", *words)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("modules", "extra", "words"),
    [
        (("aiohttp",), "server", ["server", "--dashboard", "127.0.0.1:0"]),
        (("prometheus_client",), "server", ["server", "--dashboard", "127.0.0.1:0"]),
        (("grpc_reflection",), "server", ["server", "--reflection"]),
        (("tensorboard",), "tensorboard", ["server", "--tensorboard"]),
        (("cryptography",), "server", ["lab", "certs", "certs", "--client", "a"]),
        (("jinja2",), "lab", ["lab", "report", "RUN"]),
        (("matplotlib",), "lab", ["lab", "report", "RUN"]),
        (("matplotlib",), "lab", ["lab", "partition", "--draw", "p.png"]),
        (("onnx", "onnxscript"), "onnx", ["lab", "export", "RUN", "--format", "onnx"]),
        (("tensorboard",), "tensorboard", ["lab", "tensorboard", "RUN"]),
        (("mlflow",), "mlflow", ["lab", "track", "mlflow", "RUN"]),
        (("mlflow",), "mlflow", ["server", "--track", "mlflow"]),
        (("wandb",), "wandb", ["server", "--track", "wandb"]),
        (("ray",), "ray", ["lab", "compare", "examples/digits.toml", "--on", "ray"]),
    ],
)
def test_a_missing_package_is_one_sentence_with_the_line_that_installs_it(
    modules: tuple[str, ...], extra: str, words: list[str]
) -> None:
    command, *arguments = words
    done = without(modules, command, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    named = " and ".join(modules)
    assert f" needs {named}, which {'are' if modules[1:] else 'is'} not installed: " in done.stderr
    line = shlex.split(done.stderr.partition("not installed: ")[2])
    assert "install" in line
    assert line[-1] == f".[{extra}]"


def test_the_line_is_typed_as_it_works_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the clone and elsewhere, with pip and in an environment of uv, which has none."""
    monkeypatch.setitem(sys.modules, "pip", module_from_spec(ModuleSpec("pip", None)))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}")
    assert extras.install_line("lab").endswith("install -c constraints.txt -e '.[lab]'")
    monkeypatch.chdir(tmp_path)
    assert extras.install_line("lab").endswith(f"install -c {ROOT}/constraints.txt -e '{ROOT}[lab]'")
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert extras.install_line("lab").startswith("uv pip install -c ")
    monkeypatch.delenv("VIRTUAL_ENV")
    assert extras.install_line("lab").startswith("uv pip install --python ")


def test_two_missing_packages_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        UsageError, match=r"needs rich and pyarrow, which are not installed: .*\[lab,parquet\]'"
    ):
        extras.require("that", "rich", "torch", "pyarrow")


def test_a_program_is_typed_by_its_name_only_where_the_shell_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "env" / "bin" / "fl-lab"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.chdir(tmp_path)
    assert typed.typed("fl-lab") == "env/bin/fl-lab"
    assert typed.typed("fl-nothing") == "fl-nothing"
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert typed.typed("fl-lab") == "fl-lab"
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir("/usr")
    assert typed.typed("fl-lab") == str(program)
