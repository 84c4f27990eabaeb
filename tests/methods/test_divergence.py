"""DESIGN rule 23 for every method: what is not finite ends the run with a sentence; the good model stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from edgeflock.methods.kit.registry import load, names
from support.processes import flock

# Not in what a client sends: one step is still finite (FedADM begins with one), or the server diverges first.
ELSEWHERE = {
    "fedadm": "round 1 of fedadm: every update is finite, but their sum is not",
    "pfedmo": "round 1: what pfedmo trains on the server holds NaN or infinity",
}
RUN = ("--clients=2", "--rounds=9", "--model-arg=hidden=[8]", "--lr=1e38")


@pytest.mark.parametrize("method", names())
def test_a_run_that_diverges_names_round_clients_and_method(tmp_path: Path, method: str) -> None:
    """Every step is so long that nothing stays finite."""
    with flock(tmp_path) as made:
        server = made.server(*RUN, f"--method={method}")
        clients = [] if load(method).central else [made.client("c0,c1")]
        assert server.ended() == 1
        assert [client.ended() for client in clients] == [1] * len(clients)
        seats = [name for (name,) in made.rows("SELECT client_id FROM seats ORDER BY seat")]
        refused = ", ".join(rf"{name} \(non_finite\)" for name in seats)
        wanted = ELSEWHERE.get(method, f"round 1 of {method}: 0 good updates are fewer than .*{refused}")
        assert re.search(wanted, server.sentence()), server.sentence()
        kept = sorted((made.run_dir / "rounds").glob("*/model.safetensors"))
        assert kept
        assert all(torch.isfinite(part).all() for path in kept for part in load_file(path).values())
        counted = made.rows("SELECT count(*) FROM outcomes WHERE verdict = 'counted'")
        assert counted == [(len(seats) * (len(made.rows("SELECT round FROM rounds WHERE committed")) - 1),)]
