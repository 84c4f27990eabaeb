"""What the link makes of a server's messages, and of what gRPC says when there are none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import grpc
import pytest

from edgeflock.client.link import wire
from edgeflock.client.link.trouble import unreached
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Generation, Quarantine, ServerRefused
from edgeflock.common.errors import EdgeflockError, LayoutMismatch
from edgeflock.common.reason import Reason
from edgeflock.common.wire.address import parse_address
from edgeflock.v1 import aggregator_pb2 as pb

PLAIN = Trust(parse_address("127.0.0.1:1", "--server"))
TLS = replace(PLAIN, tls=True)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def said(details: str | None, code: grpc.StatusCode = UNAVAILABLE) -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, details)


@pytest.mark.parametrize(
    ("trust", "details", "words", "hint"),
    [
        (PLAIN, None, "no connection", ""),
        (PLAIN, "Connection refused", "connection refused", ""),
        (PLAIN, "Socket closed", "the connection was closed", " (if it speaks TLS, give --tls-ca, or"),
        (TLS, "Socket closed", "the connection was closed", " (it may ask for a certificate: give"),
    ],
)
def test_a_call_that_broke_says_why_in_our_words(
    trust: Trust, details: str | None, words: str, hint: str
) -> None:
    error = unreached(said(details), trust)
    assert (str(error), error.distrusted, error.foreign) == (words, False, False)
    assert error.hint.startswith(hint)
    assert bool(error.hint) is bool(hint)


def test_what_is_configured_wrongly_is_told_from_what_passes() -> None:
    wrong = unreached(said("Handshake: CERTIFICATE_VERIFY_FAILED"), TLS)
    assert wrong.distrusted
    assert "--tls-ca" in str(wrong)
    assert not unreached(said("Handshake: CERTIFICATE_VERIFY_FAILED"), PLAIN).distrusted
    passing = unreached(said("CERTIFICATE_VERIFY_FAILED: certificate has expired"), TLS)
    assert not passing.distrusted
    assert str(passing).startswith("the server's certificate has expired")
    assert f"{datetime.now(UTC):%Y-%m-%d}" in str(passing)


def test_who_does_not_know_the_call_is_no_aggregator() -> None:
    assert unreached(said("unknown", grpc.StatusCode.UNIMPLEMENTED), PLAIN).foreign
    assert not unreached(said("unknown", grpc.StatusCode.INTERNAL), PLAIN).foreign


# ------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("shown", "ending", "failed"),
    [
        ({}, None, False),
        ({"state": pb.RUN_STATE_RUNNING}, None, False),
        ({"state": pb.RUN_STATE_FINISHED}, "the run is over", False),
        ({"ending": pb.Ending(kind=pb.ENDING_KIND_COMPLETED, reason="enough")}, "enough", False),
        ({"ending": pb.Ending(kind=pb.ENDING_KIND_FAILED, reason="bad")}, "bad", True),
    ],
)
def test_a_run_is_over_when_its_state_or_its_ending_says_so(
    shown: dict[str, Any], ending: str | None, failed: bool
) -> None:
    seen = wire.view(pb.View(**shown))
    assert (seen.ending, seen.failed) == (ending, failed)


def test_what_a_view_does_not_say_is_not_known() -> None:
    bare = wire.view(pb.View())
    assert (bare.seat, bare.task, bare.standing, bare.quarantine, bare.draining) == (None,) * 4 + (False,)
    full = wire.view(
        pb.View(
            round=4,
            seat=pb.Seat(index=0),
            state=pb.RUN_STATE_DRAINING,
            standing=pb.Standing(),
            quarantine=pb.Quarantine(until_round=9, reason="bad updates"),
            return_within_ms=700,
        )
    )
    assert (full.seat, full.standing, full.draining) == (0, Generation(0, b""), True)
    assert (full.quarantine, full.return_within_ms) == (Quarantine(9, "bad updates"), 700)


def test_a_task_without_a_number_of_steps_has_none_and_one_of_no_steps_has_none_to_do() -> None:
    for steps in (None, 0, 3):
        seen = wire.view(pb.View(task=pb.Task(round=1, epochs=2, steps=steps)))
        assert seen.task is not None
        assert (seen.task.plan.epochs, seen.task.plan.steps) == (2, steps)


def test_a_task_that_makes_no_sense_is_one_that_can_be_refused() -> None:
    task = pb.Task(round=7, closing=True)
    task.uploads.add(kind=cast(Any, 99))
    seen = wire.view(pb.View(task=task)).task
    assert seen is not None
    assert (seen.round, seen.closing, isinstance(seen.fault, EdgeflockError)) == (7, True, True)


# ------------------------------------------------------------------------------- refusals


def test_a_refusal_is_taken_with_all_that_it_says() -> None:
    message = pb.Refusal(reason=pb.REASON_BUSY, sentence="later", temporary=True, retry_after_ms=50)
    refused = wire.refused(message)
    assert (refused.reason, str(refused), refused.temporary, refused.retry_after_ms) == (
        Reason.BUSY,
        "later",
        True,
        50,
    )
    assert str(wire.refused(pb.Refusal(reason=pb.REASON_BUSY))) == "the server refused: busy"


@pytest.mark.parametrize(
    ("reason", "temporary", "anew", "passes"),
    [
        (Reason.UNKNOWN_SESSION, False, True, True),
        (Reason.SUPERSEDED, False, True, True),
        (Reason.BUSY, True, False, True),
        (Reason.LATE, False, False, False),
        (None, False, False, False),
    ],
)
def test_what_may_succeed_later_or_anew_passes(
    reason: Reason | None, temporary: bool, anew: bool, passes: bool
) -> None:
    refused = ServerRefused(reason, "no", temporary=temporary)
    assert (refused.anew, refused.passes) == (anew, passes)


def test_a_task_is_refused_with_a_sentence_that_fits_on_the_wire() -> None:
    long = wire.task_refused(3, EdgeflockError("x" * 1000))
    assert (long.round, long.refusal.sentence) == (3, "x" * 500)
    assert long.refusal.reason == pb.REASON_REFUSED_BY_CLIENT
    assert wire.task_refused(3, LayoutMismatch("other")).refusal.reason == pb.REASON_WRONG_LAYOUT
