"""Norms that steer a method: exact to float64, and the same from every thread."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

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


@pytest.mark.parametrize("scale", [1e-24, 1e-6, 1.0, 1e12, 1e25])
def test_the_quick_norm_has_eight_digits_whatever_the_scale(scale: float) -> None:
    vector = torch.randn(300_001, generator=torch.Generator().manual_seed(3)) * scale
    exact = math.fsum((vector.double() ** 2).tolist())
    assert norms.quick_squared_norm(vector) == pytest.approx(exact, rel=2e-8)


def test_the_quick_norm_does_not_depend_on_where_a_vector_lies() -> None:
    values = torch.randn(200_003, generator=torch.Generator().manual_seed(4))
    room = torch.empty(len(values) + 16)
    found = set()
    for place in range(16):
        view = room[place : place + len(values)].copy_(values)
        found.add(norms.quick_squared_norm(view))
    assert len(found) == 1


def test_the_quick_norm_of_what_is_not_finite_is_not_finite() -> None:
    assert not math.isfinite(norms.quick_squared_norm(torch.tensor([1.0, math.nan])))
    assert not math.isfinite(norms.quick_squared_norm(torch.tensor([1.0, math.inf])))


class NoFloat64(Tensor):
    """What lies on a device that knows no float64; on the CPU it is a tensor like others."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if func is Tensor.cpu:
            return args[0].detach().as_subclass(Tensor)
        parts = made if isinstance(made, (tuple, list)) else (made,)
        if any(isinstance(part, Tensor) and part.dtype == torch.float64 for part in parts):
            raise TypeError("this device has no float64")
        return made


@pytest.mark.parametrize("elements", [10, (1 << 16) + 7, (1 << 18) + 1029])
def test_a_device_without_float64_has_the_same_norms(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "has_float64", lambda _: False)
    vector = torch.randn(elements, generator=torch.Generator().manual_seed(1))
    there = vector.as_subclass(NoFloat64)
    with pytest.raises(TypeError, match="no float64"):
        there.double()
    assert norms.norm(there) == norms.norm(vector)
    assert norms.dot(there, there) == norms.dot(vector, vector)
    assert norms.quick_squared_norm(there) == norms.quick_squared_norm(vector)
