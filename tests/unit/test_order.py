"""The order of batches: a pure function, every sample once an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from edgeflock.methods.kit.order import Order


def test_every_epoch_uses_every_sample_once_with_a_short_last_batch() -> None:
    order = Order(10, 4, seed=1, seat=2)
    sizes = [len(order.rows(1, step)) for step in range(6)]
    assert sizes == [4, 4, 2, 4, 4, 2]
    for epoch in (0, 3):
        rows = np.concatenate([order.rows(1, step) for step in range(epoch, epoch + 3)])
        assert sorted(rows) == list(range(10))


def test_the_order_is_a_function_of_seed_client_round_and_epoch() -> None:
    base = Order(100, 100 // 2, seed=1, seat=2)
    assert np.array_equal(base.rows(3, 0), Order(100, 50, seed=1, seat=2).rows(3, 0))
    others = [
        base.rows(3, 2),  # the second epoch
        base.rows(4, 0),
        Order(100, 50, seed=1, seat=3).rows(3, 0),
        Order(100, 50, seed=2, seat=2).rows(3, 0),
    ]
    assert not any(np.array_equal(base.rows(3, 0), other) for other in others)


@pytest.mark.parametrize(
    ("samples", "batch_size", "epochs", "steps", "expected"),
    [
        (10, 4, 2, None, 6),
        (8, 4, 2, None, 4),
        (3, 4, 5, None, 5),
        (10, 4, 2, 7, 7),
        (10, 0, 3, None, 3),
        (0, 4, 2, 7, 0),
    ],
)
def test_the_steps_of_a_round(
    samples: int, batch_size: int, epochs: int, steps: int | None, expected: int
) -> None:
    assert Order(samples, batch_size, seed=1, seat=0).steps(epochs=epochs, steps=steps) == expected


def test_batch_size_0_is_the_whole_set_in_stored_order() -> None:
    order = Order(5, 0, seed=1, seat=0)
    assert [order.rows(1, step).tolist() for step in range(2)] == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize(("samples", "cuts"), [(9, (0, 4, 9)), (10, (0, 4, 8, 10)), (1, (0, 1)), (5, (0, 5))])
def test_a_last_batch_of_one_sample_joins_the_one_before_it(samples: int, cuts: tuple[int, ...]) -> None:
    assert Order(samples, 4, seed=1, seat=0, join_single=True).cuts == cuts
    alone = Order(samples, 4, seed=1, seat=0).cuts
    assert len(alone) == -(-samples // 4) + 1
