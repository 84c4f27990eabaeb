"""An outage in mid-transfer is waiting: no delivering, and no watts of work."""

from __future__ import annotations

import time

from support.processes import Flock
from support.proxy import Proxy

AWAY_S = 8.0
WATTS = 10.0
FLAGS = (
    "--clients=1",
    "--rounds=5",
    "--model=mlp",
    "--model-arg=hidden=[1024,256]",
    "--steps=1",
    "--eval-every=0",
)
SIZE = 4 * (64 * 1024 + 1024 + 1024 * 256 + 256 + 256 * 10 + 10)


def test_a_link_that_is_away_in_mid_transfer_is_waited_for(flock: Flock) -> None:
    """Nothing is lost, so that nobody notices: the packets come when it is back."""
    server = flock.server(*FLAGS)
    with Proxy(lambda: flock.address) as proxy:
        client = flock.client("c0", f"--server={proxy.address}", f"--watts={WATTS}")
        proxy.wait_for("up", 2 * SIZE + SIZE // 2)
        proxy.part()
        time.sleep(AWAY_S)  # which is what is measured
        proxy.heal()
        assert [server.ended(), client.ended()] == [0, 0]
    sums = "sum(fetch_s + deliver_s), sum(wait_s), sum(energy_j), sum(fetch_s + train_s + deliver_s)"
    ((moving, waiting, joules, working),) = flock.rows(f"SELECT {sums} FROM costs")
    assert waiting > AWAY_S * 0.9
    assert moving < AWAY_S / 2
    assert abs(joules - WATTS * working) < 0.01 * joules + 1e-6
