"""Rounds of Flower's simulation on Ray in which nothing is trained.

    python flower.py CLIENTS ROUNDS ELEMENTS

Prints a line of JSON when a round is over: the seconds since the epoch, and how many clients answered.
"""

# pyright: reportMissingImports=false
# (these packages are in an environment of their own)

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import flwr.client
import flwr.common
import flwr.server
import flwr.server.strategy
import flwr.simulation
import numpy as np

CLIENTS, ROUNDS, ELEMENTS = map(int, sys.argv[1:4])
ACTORS = 2
STORE_BYTES = 400 << 20


class Same(flwr.client.NumPyClient):  # type: ignore[misc]  # Flower is in an environment of its own
    """Returns what it receives."""

    def fit(self, parameters: Any, config: Any) -> tuple[Any, int, dict[str, Any]]:
        return parameters, 8, {}


class Told(flwr.server.strategy.FedAvg):  # type: ignore[misc]  # as above
    """FedAvg that says when a round is over."""

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        found = super().aggregate_fit(server_round, results, failures)
        print(json.dumps({"at": time.time(), "answered": len(results)}), flush=True)
        return found


def serve(context: Any) -> Any:
    start = flwr.common.ndarrays_to_parameters([np.full(ELEMENTS, 1e-3, np.float32)])
    strategy = Told(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=CLIENTS,
        min_available_clients=CLIENTS,
        initial_parameters=start,
    )
    config = flwr.server.ServerConfig(num_rounds=ROUNDS)
    return flwr.server.ServerAppComponents(strategy=strategy, config=config)


def make(context: Any) -> Any:
    return Same().to_client()


if __name__ == "__main__":
    ray = {
        "num_cpus": ACTORS,
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
        "_temp_dir": os.environ["SCALE_TEMP"],
    }
    flwr.simulation.run_simulation(
        server_app=flwr.server.ServerApp(server_fn=serve),
        client_app=flwr.client.ClientApp(client_fn=make),
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": ray},
    )
