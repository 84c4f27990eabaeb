"""What an update must be: at its bounds it is taken, beyond them it is refused."""

from __future__ import annotations

import pytest

from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import IDENTITY, Kind, Package, Section
from edgeflock.common.reason import Reason
from edgeflock.common.scores import LOCAL, POOLED, ClientScore
from edgeflock.server.engine.checks import Unfit, check_package, check_scores
from edgeflock.server.learning.work import UploadSpec
from support.scored import MARKING

MOST, LARGEST = 1 << 48, 3.4e38
LAYOUT = Layout.of([("weight", (3,))])
SPEC = UploadSpec(Kind.DELTA, LAYOUT, IDENTITY)


def package(size: float = 12, **scalars: float) -> Package:
    section = Section(Kind.DELTA, LAYOUT.digest, IDENTITY, 3, int(size))
    return Package((section,), {"samples": 1.0, "steps": 1.0, "loss": 0.5, **scalars})


@pytest.mark.parametrize("score", [(1, 0, 0.0), (1, 1, LARGEST), (MOST, MOST, -LARGEST)])
def test_a_score_is_taken_up_to_its_bounds(score: tuple[int, int, float]) -> None:
    check_scores([ClientScore(LOCAL, *score), ClientScore(POOLED, *score)], MARKING)


@pytest.mark.parametrize("score", [(0, 0, 0.0), (MOST + 1, 0, 0.0), (1, 2, 0.0), (1, 0, 3.5e38)])
def test_a_score_beyond_them_is_none(score: tuple[int, int, float]) -> None:
    with pytest.raises(Unfit, match=r"^the score client_local states \d+ hits of ") as caught:
        check_scores([ClientScore(LOCAL, *score)], MARKING)
    assert caught.value.reason is Reason.MALFORMED


def test_a_score_of_an_unknown_model_is_none() -> None:
    with pytest.raises(Unfit, match=r"^a score has the name 'x{40}', known are "):
        check_scores([ClientScore("x" * 99, 1, 0, 0.0)], MARKING)


def test_a_score_is_told_once() -> None:
    one = ClientScore(LOCAL, 1, 0, 0.0)
    with pytest.raises(Unfit, match=r"^a score is told twice$"):
        check_scores([one, ClientScore(POOLED, 1, 0, 0.0), one], MARKING)


@pytest.mark.parametrize(
    "scalars",
    [
        {"samples": 0.0, "steps": 0.0},
        {"samples": float(MOST), "steps": float(MOST)},
        {"loss": LARGEST},
        {"loss": float("nan")},  # that has a verdict of its own
        {"loss": float("-inf")},
    ],
)
def test_numbers_are_taken_up_to_their_bounds(scalars: dict[str, float]) -> None:
    check_package(package(**scalars), [SPEC])


@pytest.mark.parametrize(
    ("scalars", "words"),
    [
        ({"samples": -1.0}, "the scalar 'samples' is -1.0, allowed is a whole number >= 0"),
        ({"steps": MOST + 1.0}, "the scalar 'steps' is"),
        ({"steps": 1.5}, "the scalar 'steps' is 1.5"),
        ({"loss": -3.5e38}, "the scalar 'loss' is -3.5e"),
        ({"tau": 3.5e38}, "the scalar 'tau' is 3.5e"),
    ],
)
def test_numbers_beyond_them_are_refused(scalars: dict[str, float], words: str) -> None:
    with pytest.raises(Unfit, match=words) as caught:
        check_package(package(**scalars), [SPEC])
    assert caught.value.reason is Reason.MALFORMED


def test_bytes_are_taken_up_to_what_the_codec_can_need() -> None:
    check_package(package(SPEC.largest), [SPEC])
    with pytest.raises(Unfit, match=f"delta has {SPEC.largest + 1} bytes, at most") as caught:
        check_package(package(SPEC.largest + 1), [SPEC])
    assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(("digest", "elements"), [(b"x" * 16, 3), (LAYOUT.digest, 4)])
def test_numbers_of_another_layout_are_refused_whatever_of_it_is_other(digest: bytes, elements: int) -> None:
    section = Section(Kind.DELTA, digest, IDENTITY, elements, 12)
    with pytest.raises(Unfit, match="has not the layout that the task names") as caught:
        check_package(Package((section,), {"samples": 1.0, "steps": 1.0, "loss": 0.5}), [SPEC])
    assert caught.value.reason is Reason.WRONG_LAYOUT


def test_what_a_method_needs_must_be_there_if_a_step_was_made() -> None:
    check_package(package(drift=0.5), [SPEC], ("drift",))
    check_package(package(steps=0.0), [SPEC], ("drift",))  # no hook was called that could know it
    with pytest.raises(Unfit, match="the update lacks the scalar 'drift'"):
        check_package(package(), [SPEC], ("drift",))
    answer = Package((), {"samples": 1.0, "steps": 0.0, "loss": 0.0})
    with pytest.raises(Unfit, match="the update lacks the scalar 'drift'"):
        check_package(answer, [], ("drift",))  # a closing task asks for nothing else


@pytest.mark.parametrize("name", ["samples", "steps", "loss"])
def test_every_update_says_how_much_it_was_and_how_it_went(name: str) -> None:
    scalars = {"samples": 1.0, "steps": 1.0, "loss": 0.5}
    del scalars[name]
    with pytest.raises(Unfit, match=f"^the update lacks the scalar '{name}'$"):
        check_package(Package((), scalars), [])


def test_bundles_that_are_not_asked_for_are_named() -> None:
    with pytest.raises(Unfit, match="the update holds delta, wanted is nothing"):
        check_package(package(), [])
    with pytest.raises(Unfit, match="the update holds nothing, wanted is delta"):
        check_package(Package((), {}), [SPEC])
