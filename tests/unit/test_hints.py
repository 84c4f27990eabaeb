"""A flag that does not exist: what was probably meant."""

from __future__ import annotations

import pytest

from edgeflock.server.start.hints import explain


@pytest.mark.parametrize(
    ("words", "flag", "said"),
    [
        ("--method fedprox --mu 0.1", "--mu", "an option of fedprox: give --set mu=0.1"),
        ("--method=fedprox --mu=0.1", "--mu", "an option of fedprox: give --set mu=0.1"),
        ("--method fedprox --mu", "--mu", "an option of fedprox: give --set mu=VALUE"),
        ("--method fedprox --mu --rounds=3", "--mu", "an option of fedprox: give --set mu=VALUE"),
        ("--method fedmrur --cm-alpha .5", "--cm-alpha", "an option of fedmrur: give --set cm_alpha=.5"),
        ("--method fedprocks --mu 1", "--mu", ""),
        ("--method fedprox --color red", "--color", ""),
    ],
)
def test_an_option_of_a_method_is_said_as_it_is_given(words: str, flag: str, said: str) -> None:
    assert explain(words.split(), flag) == said


def test_an_option_of_other_methods_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = explain(["--mu=0.1"], "--mu")
    assert owners.startswith("an option of ")
    assert owners.endswith(", not of fedavg: give --method fedprox --set mu=0.1")
    monkeypatch.setenv("FL_SERVER_METHOD", "fedprox")
    assert explain(["--mu=0.1"], "--mu") == "an option of fedprox: give --set mu=0.1"
