"""What a round costs on the wire, as the journal of a real run has it, against METHODS section 5's table."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from edgeflock.methods.kit.registry import load, names
from support.processes import flock

HIDDEN, CLASSES, CLIENTS, ROUNDS = 16, 10, 3, 3
W = 64 * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES  # |w| of the MLP on digits


class Moved(NamedTuple):
    """Float32 numbers per round and client: in |w|, and what is small beside it."""

    down: int  # from the second round on; in the first it is one model for every method
    up: int
    extra_down: int = 0
    extra_up: int = 0


CENTROIDS = CLASSES * HIDDEN + CLASSES  # FedTR: one centroid of HIDDEN features and one count per class
TABLE = {
    **dict.fromkeys(
        ("fedavg", "fedprox", "fedtrip", "moon", "feddyn", "fedntd", "slowmo", "fedmom", "fedexp"),
        Moved(1, 1),
    ),
    **dict.fromkeys(
        ("fedadam", "fedyogi", "fedadagrad"),
        Moved(1, 1),
    ),
    "fedtr": Moved(1, 1, CENTROIDS, CENTROIDS),
    "fedadm": Moved(1, 2),  # with its control on; numbers travel in the header
    **dict.fromkeys(("pfedmo", "fednag", "fastslowmo"), Moved(2, 2)),
    **dict.fromkeys(("fedmrur", "fedcm", "mofedsam", "fedadc", "domo"), Moved(2, 1)),
    **dict.fromkeys(("scaffold", "feddc", "mimelite"), Moved(2, 2)),
    "mime": Moved(3, 2),
    "centralized": Moved(0, 0),
}
RUN = (f"--clients={CLIENTS}", f"--rounds={ROUNDS}", f"--model-arg=hidden=[{HIDDEN}]", "--seed=5")
FIXED = {"fedadm": (("--set=tau=fixed:3",), Moved(1, 1))}  # and its gradients stay where they are


def measured(folder: Path, method: str, *flags: str) -> dict[int, set[tuple[int, int]]]:
    """Run three rounds over gRPC; return by round the (down, up) bytes of payload of whoever took part."""
    found = load(method)
    alone = found.full_participation or method == "fedadm"  # FedADM's absent clients fetch an anchor
    shape = () if alone or found.central else ("--cohort=2",)
    with flock(folder) as made:
        server = made.server(*RUN, f"--method={method}", *shape, *flags)
        clients = [] if found.central else [made.client("c0,c1,c2")]
        assert [server.ended(), *(client.ended() for client in clients)] == [0] * (1 + len(clients))
        query = "SELECT round, bytes_down, bytes_up, resent_bytes FROM costs WHERE round <= 3"
        rows = made.rows(query)
    members = 1 if found.central else CLIENTS if alone else 2
    assert sorted(row[0] for row in rows) == sorted([*range(1, ROUNDS + 1)] * members)
    assert all(resent == 0 for *_, resent in rows)
    return {
        number: {(down, up) for round, down, up, _ in rows if round == number}
        for number in range(1, ROUNDS + 1)
    }


def declared(moved: Moved) -> dict[int, set[tuple[int, int]]]:
    """Return the same in bytes, from a row of the table."""
    up = 4 * (moved.up * W + moved.extra_up)
    first, later = 4 * W * min(1, moved.down), 4 * (moved.down * W + moved.extra_down)
    return {number: {(first if number == 1 else later, up)} for number in range(1, ROUNDS + 1)}


@pytest.mark.parametrize("method", names())
def test_a_round_moves_what_the_table_says(tmp_path: Path, method: str) -> None:
    """Exactly: codec identity, nothing sent twice. What is zero by definition is not sent at first."""
    assert measured(tmp_path, method) == declared(TABLE[method])


@pytest.mark.parametrize("method", FIXED)
def test_an_option_that_saves_bytes_saves_them(tmp_path: Path, method: str) -> None:
    flags, moved = FIXED[method]
    assert measured(tmp_path, method, *flags) == declared(moved)


def test_the_table_names_every_method_and_no_other() -> None:
    assert sorted(TABLE) == names()
