"""One flock of processes per test, and the run that nothing disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import processes
from support.processes import Flock

RUN = ("--clients=3", "--rounds=40", "--seed=7", "--deadline=60")


@pytest.fixture
def flock(tmp_path: Path) -> Iterator[Flock]:
    with processes.flock(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of RUN."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("undisturbed"), RUN, ("c0", "c1", "c2"))
