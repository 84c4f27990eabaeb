"""What a client has measured, as values: nothing is said of nothing, sums and peaks keep their rules."""

from __future__ import annotations

import pytest

from edgeflock.client.costs import ExamCost, Passes, Readings, RoundCost, TrainCost, both, highest
from edgeflock.v1 import aggregator_pb2 as pb


@pytest.mark.parametrize("nothing", [TrainCost(), RoundCost(1, 0.0, 0.0, 0.0, 0.0, 0.0, 0)])
def test_where_nothing_was_measured_nothing_is_said(nothing: TrainCost | RoundCost) -> None:
    said = nothing.fields()
    said.pop("round", None)
    assert not any(said.pop("readings").values())
    assert not any(said.values())


def test_work_that_was_not_begun_took_nothing() -> None:
    assert not any([*Passes(), *ExamCost()])
    assert Passes(1, 2, 3, 4).plus(Passes(10, 20, 30, 40)) == Passes(11, 22, 33, 44)


def test_the_higher_of_what_is_known_is_known() -> None:
    assert [highest(1, 2), highest(2, 1), highest(None, 1), highest(1, None)] == [2, 2, 1, 1]
    assert highest(None, None) is None


def test_joules_are_summed_as_far_as_they_are_known() -> None:
    assert [both(1.0, 2.0), both(None, 1.0), both(1.0, None), both(None, None)] == [3.0, 1.0, 1.0, None]


def test_costs_that_other_versions_have_stored_are_read_as_far_as_they_are_known() -> None:
    cost = TrainCost(train_s=2.0, used_up="cpu")
    assert TrainCost.of({**cost.fields(), "newer": 7}) == cost
    assert TrainCost.of({}) == TrainCost()


def test_what_comes_after_the_last_verdict_is_added_and_the_peak_stays_the_highest() -> None:
    one = RoundCost(4, 0.5, 2.0, 0.25, 1.0, 1.5, 900, exam_s=0.5, exam_cpu_s=0.25, steps=3, samples_done=30)
    rest = RoundCost(5, 0.0, 1.0, 0.0, 4.0, 0.5, 1000, exam_s=1.0, exam_cpu_s=0.5, steps=1, samples_done=10)
    assert one.with_rest(rest) == RoundCost(4, 0.5, 3.0, 0.25, 5.0, 2.0, 1000, Readings(), 1.5, 0.75, 4, 40)


def test_a_statement_has_a_field_on_the_wire_for_each_of_its_columns() -> None:
    assert set(RoundCost._fields) <= {field.name for field in pb.RoundCost.DESCRIPTOR.fields}
