"""The same seed gives the same final bytes, whatever the number of processes and threads that train."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes import run_to_the_end

FLAGS = ("--clients=4", "--rounds=3", "--seed=11", "--batch-size=16", "--partition=dirichlet:0.5")
ONE, TWO, FOUR = ("c0,c1,c2,c3",), ("c3,c0", "c2,c1"), ("c3", "c2", "c1", "c0")


@pytest.mark.promise("R13")
@pytest.mark.parametrize(
    ("flags", "ways"),
    [
        ((), ((ONE, ()), (TWO, ()), (FOUR, ()), (ONE, ("--parallel=3",)))),
        (("--codec=int8+zstd", "--codec-down=bf16"), ((ONE, ("--parallel=2",)), (FOUR, ()))),
        (("--codec=topk:0.1",), ((ONE, ()), (TWO, ("--parallel=2",)))),
        (("--model=lenet5", "--steps=2", "--cohort=2"), ((ONE, ()), (TWO, ()))),
    ],
    ids=["plain", "int8", "topk", "lenet5"],
)
def test_the_final_bytes_do_not_depend_on_how_clients_are_hosted(
    tmp_path: Path, flags: tuple[str, ...], ways: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
) -> None:
    hashes = []
    for number, (hosts, client_flags) in enumerate(ways):
        folder = tmp_path / str(number)
        folder.mkdir()
        hashes.append(run_to_the_end(folder, (*FLAGS, *flags), hosts, *client_flags))
    assert set(hashes) == {hashes[0]}


def test_another_seed_gives_other_bytes(tmp_path: Path) -> None:
    """The comparison above can fail."""
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    first = run_to_the_end(tmp_path / "1", (*FLAGS, "--seed=1"), ONE)
    assert first != run_to_the_end(tmp_path / "2", (*FLAGS, "--seed=2"), ONE)
