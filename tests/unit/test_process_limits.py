"""What a process of many clients asks of its system and of Python: descriptors, and rare collections."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from edgeflock.common import descriptors, garbage
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.cautions import cautions

_RAISED = """
import resource
from edgeflock.common import descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert descriptors.limit() == 64
assert descriptors.raise_limit() >= hard > 64
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_the_soft_limit_of_descriptors_becomes_the_hard_one() -> None:
    subprocess.run([sys.executable, "-c", _RAISED], check=True)


def test_a_limit_that_may_not_be_raised_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert descriptors.raise_limit() == descriptors.limit()


@pytest.mark.parametrize(("clients", "said"), [(900, False), (901, True), (30_000, True)])
def test_more_clients_than_descriptors_are_told_of(
    monkeypatch: pytest.MonkeyPatch, clients: int, said: bool
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 1000)
    words = cautions(ServerConfig(model="linear", dataset="digits", lr=0.1, steps=1, clients=clients))
    assert [f"--clients {clients} are more than the 1000 files" in one for one in words] == [True] * said


@pytest.fixture
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(("clients", "young"), [(8, 700), (99, 700), (100, 5_000), (10_000, 50_000)])
def test_garbage_is_looked_for_the_more_seldom_the_more_clients_there_are(clients: int, young: int) -> None:
    gc.set_threshold(700, 10, 10)
    garbage.settle(clients)
    assert gc.get_threshold() == (young, 10, 10)
    assert (gc.get_freeze_count() > 0) == (clients >= garbage.MANY)
