"""When a last model is warned of, and what to type then."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from edgeflock.common.command import extras
from edgeflock.server.config import ServerConfig
from edgeflock.server.console import onward
from edgeflock.server.console.caution import UNTESTED, Caution, ModelTest, caution
from edgeflock.server.console.summary import untested
from edgeflock.server.journal.reader import Event


def scored(*figures: tuple[float, float]) -> list[ModelTest]:
    return [ModelTest(number, accuracy, loss) for number, (accuracy, loss) in enumerate(figures, start=1)]


def words(*figures: tuple[float, float]) -> str:
    found = caution(scored(*figures))
    return found.words if found else ""


def test_a_run_that_has_learned_is_not_warned_of() -> None:
    assert words((0.3, 2.0), (0.8, 1.0), (0.9, 0.5), (0.89, 0.55)) == ""
    assert words((0.1, 2.3)) == ""
    assert words() == ""


def test_a_last_model_far_below_the_best_is_warned_of_with_the_way_to_the_best() -> None:
    found = caution(scored((0.3, 2.0), (0.9, 0.5), (0.4, 1.9)))
    assert found is not None
    assert found.words == "the last model has accuracy 0.4000, far below the best one, 0.9000 in round 2"
    assert found.best == ModelTest(2, 0.9, 0.5)


def test_a_loss_that_has_grown_is_warned_of() -> None:
    assert words((0.3, 2.0), (0.9, 0.5), (0.9, 0.8)) == "the loss has grown from 0.5000 in round 2 to 0.8000"
    assert words((0.3, 0.02), (0.9, 0.01), (0.9, 0.05)) == ""


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_warned_of(loss: float) -> None:
    assert words((0.5, 1.0), (0.5, loss)) == "the loss of the last model is not finite"


def test_a_run_at_chance_level_is_warned_of() -> None:
    found = caution(scored((0.1, 2.4), (0.1, 2.31), (0.1, 2.31)))
    said = "hardly anything was learned: accuracy 0.1000, loss 2.3100, after 0.1000 and 2.4000 in round 1"
    assert found == Caution(said, None)
    assert words((0.95, 0.2), (0.95, 0.2), (0.95, 0.2)) == ""


def test_what_to_type_next_works_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(onward, "typed", lambda name: name)
    found = Caution("it is bad", ModelTest(2, 0.9, 0.5))
    assert dict(onward.onward(tmp_path / "my runs" / "one", found)) == {
        "caution": "it is bad; fl-lab export 'my runs/one' --which best takes that of round 2",
        "next": "fl-lab report 'my runs/one'",
    }


def test_without_what_a_report_needs_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "matplotlib" else object())
    monkeypatch.setattr(onward, "typed", lambda name: name)
    ((name, what),) = onward.onward(Path("runs/one"), None)
    assert name == "next"
    assert what.startswith("fl-lab events runs/one; fl-lab report needs matplotlib, which is not installed: ")


def test_a_run_in_which_nobody_could_test_its_models_says_so() -> None:
    config = ServerConfig(dataset=None, input_shape="6", classes=2)
    events = [Event(1, 0.0, "round_committed", {"round": 1})]
    assert untested(config, events) is UNTESTED
    assert "--hold-out" in dict(onward.onward(Path("runs/one"), UNTESTED))["caution"]
    assert untested(config, [*events, Event(2, 0.0, "evaluated", {"round": 1})]) is None
    assert untested(ServerConfig(dataset=None, input_shape="6", classes=2, eval_every=0), events) is None
    assert untested(ServerConfig(dataset="digits"), events) is None
