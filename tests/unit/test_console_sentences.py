"""The story of a run in sentences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgeflock.server.console.sentences import _SENTENCES, is_known, line, sentence
from edgeflock.server.journal.reader import Event

SERVER = Path(__file__).parents[2] / "server" / "edgeflock" / "server"
WRITING = [path for path in SERVER.rglob("*.py") if not {"console", "web"} & set(path.parts)]


def event(name: str, **fields: Any) -> Event:
    return Event(1, 0.0, name, fields)


def test_a_committed_round_names_who_did_not_count_and_why() -> None:
    told = event(
        "round_committed", round=3, counted=2, loss=0.5, not_counted={"pi7": "late", "pi9": "non_finite"}
    )
    assert sentence(told.name, told.fields) == (
        "round 3 is done: 2 updates count, training loss 0.5000; not counted: pi7 (late), pi9 (non_finite)"
    )


def test_a_cohort_is_named_one_by_one() -> None:
    assert line(event("round_opened", round=1, cohort=["a", "b"])) == (
        "1970-01-01 00:00:00Z  round 1 opens for a, b"
    )


def test_who_is_refused_is_told_why_in_words() -> None:
    """The number of the wire's enum stays in --json, for programs."""
    fields = {"client": "a", "reason": "REASON_WRONG_DATA", "times": 1, "sentence": "wrong shape"}
    assert sentence("refused", fields) == "a is refused (1 so far): wrong shape"


def test_an_event_of_another_version_is_still_told() -> None:
    assert sentence("comet_passed", {"tail": []}) == "comet_passed tail=nobody"
    assert sentence("client_left", {}) == "client_left"


@pytest.mark.parametrize("name", sorted(_SENTENCES))
def test_every_sentence_is_of_an_event_that_the_server_writes(name: str) -> None:
    sources = "".join(path.read_text("utf-8") for path in WRITING)
    assert f'"{name}"' in sources


def test_every_event_that_the_server_writes_has_a_sentence() -> None:
    sources = "".join(path.read_text("utf-8") for path in WRITING)
    written = set(re.findall(r'(?:Announce|note|write_event)\(\s*(?:connection, )?"(\w+)"', sources))
    assert written <= {name for name in written if is_known(name)}


def test_what_a_peer_says_cannot_move_the_cursor() -> None:
    told = sentence("client_leaving", {"client": "c1", "reason": "\x1b[2Jbye\r\n"})
    assert (
        told == "c1 leaves: \N{REPLACEMENT CHARACTER}[2Jbye\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    )
