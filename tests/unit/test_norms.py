"""Norms that steer a method: exact to float64, and the same from every thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from edgeflock.common import norms


@pytest.mark.parametrize("count", [0, 1, 1000, norms.BLOCK, 2 * norms.BLOCK + 7])
def test_they_are_sums_in_float64(count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(count, generator=generator) for _ in range(2))
    wide, other = a.double().numpy(), b.double().numpy()
    assert norms.dot(a, b) == pytest.approx(float(wide @ other), rel=1e-12, abs=1e-12)
    assert norms.squared_norm(a) == pytest.approx(float(wide @ wide), rel=1e-13)
    assert norms.norm(a) == pytest.approx(float(np.linalg.norm(wide)), rel=1e-13)


def test_threads_do_not_disturb_each_other() -> None:
    generator = torch.Generator().manual_seed(1)
    vectors = [torch.randn(3 * norms.BLOCK, generator=generator) for _ in range(8)]
    alone = [norms.norm(vector) for vector in vectors]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert list(pool.map(norms.norm, vectors)) == alone
