"""Whatever else answers behind the server's address for a while: whoever has had a seat waits it out."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from support import processes, strangers
from support.processes import Flock, Program
from support.proxy import Proxy

RUN = ("--clients=2", "--rounds=40", "--seed=5", "--deadline=60", "--model=linear", "--eval-every=0")
ELSEWHERE = ("--clients=1", "--max-clients-wait=600")


def stranger(stack: ExitStack, folder: Path, *flags: str) -> str:
    """Serve another run; return its address."""
    folder.mkdir()
    other = stack.enter_context(processes.flock(folder))
    other.server(*ELSEWHERE, *flags)
    return other.address


def refused(client: Program) -> int:
    """How often it has said that it waits though it was refused for good."""
    return len(client.events("server_not_reached", met=True))


@pytest.mark.promise("R7")
def test_a_client_with_a_seat_waits_until_strangers_are_gone_and_then_takes_its_tasks_again(
    flock: Flock, tmp_path: Path
) -> None:
    """Without and with --stay."""
    server = flock.server(*RUN)
    with ExitStack() as stack:
        places = {
            "another service": stack.enter_context(strangers.service()),
            "a model of their own": stranger(
                stack, tmp_path / "own", "--model=support.custom_models:plain", "--method=fedavg"
            ),
            "an ingress": stack.enter_context(strangers.ingress()),
            "data of their own": stranger(
                stack, tmp_path / "data", f"--eval-data={samples(tmp_path)}", "--model=linear"
            ),
        }
        now = [flock.address]
        proxy = stack.enter_context(Proxy(lambda: now[0]))
        clients = [
            flock.client("c0", f"--server={proxy.address}"),
            flock.client("c1", f"--server={proxy.address}", "--stay"),
        ]
        for client in clients:
            client.wait_for("update_settled", round=2)
        for place in places.values():
            before = list(map(refused, clients))
            now[0] = place
            proxy.reset_all()
            for client, times in zip(clients, before, strict=True):
                client.wait_for("server_not_reached", met=True, count=times + 1)
        now[0] = flock.address
        proxy.reset_all()
        assert (server.ended(), clients[0].ended()) == (0, 0)
        clients[1].signal(signal.SIGTERM)
        assert clients[1].ended() == 0
    for client in clients:
        assert refused(client) == len(places), "each is said once"
        assert not client.events("task_refused")


def test_hosted_clients_take_their_tasks_again_after_one_of_them_was_in_a_strangers_run(
    flock: Flock, tmp_path: Path
) -> None:
    server = flock.server(*RUN)
    with ExitStack() as stack:
        now = [flock.address]
        proxy = stack.enter_context(Proxy(lambda: now[0]))
        both = flock.client("c0,c1", f"--server={proxy.address}")
        both.wait_for("update_settled", round=2)
        now[0] = stranger(stack, tmp_path / "other", "--model=linear", "--rounds=1000000")
        proxy.reset_all()
        both.wait_for("server_not_reached", met=True, reason="all 1 seats of this run are taken")
        both.wait_for("update_settled", round=2, count=3)  # of the stranger's, too
        now[0] = flock.address
        proxy.reset_all()
        assert (server.ended(), both.ended()) == (0, 0)
    assert not both.events("task_refused")


def samples(folder: Path) -> Path:
    path = folder / "own.npz"
    np.savez(path, x=np.zeros((4, 8, 8), np.float32), y=np.arange(4))
    return path


def test_at_first_contact_a_stranger_ends_the_client_at_once(flock: Flock) -> None:
    with strangers.service() as one, strangers.ingress() as other:
        ends = [
            flock.start("fl-client", f"--server={address}", f"--state-dir={flock.folder / str(number)}")
            for number, address in enumerate((one, other))
        ]
        for client in ends:
            assert client.ended() == 1
            assert client.sentence().endswith("is not an fl-server of this generation")
