"""The one door for foreign code: references, entry points, and what no message may make anybody import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeflock.common.errors import BadValue
from edgeflock.common.plugins import loading
from edgeflock.common.plugins.loading import PluginError, allow, find, installed, load


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, which is forgotten afterwards with all that was imported from it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(loading, "_allowed", set())
    installed.cache_clear()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    installed.cache_clear()


def install(site: Path, package: str, point: str, code: str, group: str = "edgeflock.methods") -> None:
    """Put a module and its metadata where an installer would."""
    (site / f"{package}.py").write_text(code)
    info = site / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{point}\n")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = {}['weights']", r"--model: importing theirs failed: KeyError: weights \(theirs.py:1\)"),
        ("\n\ndef f(:\n", r"SyntaxError: invalid syntax \(theirs.py:3\)"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3 \(theirs.py:2\)"),
        ("\nimport pandsa\n", r"ModuleNotFoundError: No module named 'pandsa' \(theirs.py:2\)"),
        ("from math import sqtr", r"ImportError: cannot import name 'sqtr' .*\(theirs.py:1\)"),
    ],
)
def test_what_a_users_module_raises_is_the_users_with_file_and_line(
    site: Path, code: str, words: str
) -> None:
    (site / "theirs.py").write_text(code)
    with pytest.raises(PluginError, match=words) as raised:
        load("theirs:NAME", "--model")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("reference", ["mine", ":NAME", "a b:NAME", "no.such_module:NAME", "math:NAME"])
def test_a_reference_to_nothing_is_a_wrong_value_of_its_option(site: Path, reference: str) -> None:
    with pytest.raises(BadValue, match=r"--task is .*, allowed is package.module:TASK, importable from here"):
        load(reference, "--task", "TASK")


def test_an_entry_point_is_listed_without_being_imported_and_found_by_its_name(site: Path) -> None:
    install(site, "theirs", "better = theirs:METHOD", "METHOD = 7")
    (plugin,) = installed("methods")["better"]
    assert (plugin.origin, plugin.reference) == ("theirs 1.2", "theirs:METHOD")
    assert "theirs" not in sys.modules
    assert find("methods", "better", int) == 7
    assert find("methods", "other", int) is None
    assert find("models", "better", int) is None


def test_an_entry_point_that_is_not_what_it_should_be_names_its_package(site: Path) -> None:
    install(site, "theirs", "better = theirs:METHOD", "METHOD = 7")
    install(site, "gone", "lost = gone:METHOD", "")
    with pytest.raises(
        PluginError, match=r"method better of theirs is of the type int, wanted is builtins.str"
    ):
        find("methods", "better", str)
    with pytest.raises(PluginError, match=r"method lost of gone is 'gone:METHOD', .* has no METHOD"):
        find("methods", "lost", str)


def test_two_packages_of_one_name_are_told_apart_by_their_owner(site: Path) -> None:
    install(site, "one", "better = one:METHOD", "METHOD = 1")
    install(site, "two", "better = two:METHOD", "METHOD = 2")
    with pytest.raises(
        PluginError, match=r"method 'better' is brought by (one and two|two and one): uninstall"
    ):
        find("methods", "better", int)


def test_a_name_imports_nothing_that_this_process_was_not_told_to_allow(site: Path) -> None:
    (site / "theirs.py").write_text("METHOD = 7")
    with pytest.raises(PluginError, match="not allowed: start with --allow-code theirs:METHOD"):
        find("methods", "theirs:METHOD", int)
    assert "theirs" not in sys.modules
    allow("theirs:METHOD", "--allow-code")
    assert find("methods", "theirs:METHOD", int) == 7
    with pytest.raises(PluginError, match="not allowed"):  # nor another name of the same module
        find("methods", "theirs:OTHER", int)
