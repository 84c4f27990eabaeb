"""Either end dies or is told to go at any instant, comes back, and the run ends in the same bits."""

from __future__ import annotations

import random
import signal
import time

import pytest

from faults.conftest import RUN
from support.processes import Flock, Program
from support.promises import Trials

SHORT_S = 0.06  # one to three rounds with their commits


def die_somewhere(server: Program, dice: random.Random) -> None:
    """Kill the server, at random before the clients are back or somewhere in the rounds after that."""
    if dice.random() < 0.7:
        server.wait_for("round_committed", count=dice.randint(1, 2))
    time.sleep(dice.uniform(0, SHORT_S))  # the instant is the test's input, not a synchronisation
    server.kill()


def killed_server_run(flock: Flock, trials: Trials, seed: int, kills: int) -> str:
    """Kill the server so often; what it had decided stays so, and no update that was there is sent again."""
    dice = random.Random(seed)
    server = flock.server(*RUN)
    address = flock.address
    clients = flock.clients("c0", "c1", "c2")
    for kill in range(kills):
        with trials(f"seed {seed}, kill {kill} of {kills}"):
            die_somewhere(server, dice)
            before = flock.decided()
            server = flock.server()
            assert flock.address == address  # the clients know no other
            assert before <= flock.decided()
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0, 0]
    assert flock.sent_again() == 0
    return flock.sha256()


@pytest.mark.promise("R1")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_server_killed_again_and_again_ends_in_the_same_bits(
    flock: Flock, undisturbed: str, trials: Trials, seed: int
) -> None:
    assert killed_server_run(flock, trials, seed, kills=3) == undisturbed


@pytest.mark.long
@pytest.mark.promise("R1")
@pytest.mark.parametrize("seed", range(100, 150))
def test_a_server_killed_at_many_instants_ends_in_the_same_bits(
    flock: Flock, undisturbed: str, trials: Trials, seed: int
) -> None:
    """Two hundred kills in all."""
    assert killed_server_run(flock, trials, seed, kills=4) == undisturbed


def killed_client_run(flock: Flock, trials: Trials, seed: int, kills: int) -> str:
    dice = random.Random(seed)
    server = flock.server(*RUN)
    others, victim = flock.client("c0,c1"), flock.client("c2")
    for kill in range(kills):
        with trials(f"seed {seed}, kill {kill} of {kills}"):
            if dice.random() < 0.3:
                victim.wait_for("client_started")
            else:
                victim.wait_for("update_settled", count=dice.randint(1, 2))
            time.sleep(dice.uniform(0, SHORT_S))
            victim.kill()
            victim = flock.client("c2")
    assert [server.ended(), others.ended(), victim.ended()] == [0, 0, 0]
    return flock.sha256()


@pytest.mark.promise("R5")
def test_a_client_killed_again_and_again_ends_in_the_same_bits(
    flock: Flock, undisturbed: str, trials: Trials
) -> None:
    assert killed_client_run(flock, trials, seed=3, kills=3) == undisturbed


@pytest.mark.long
@pytest.mark.promise("R5")
@pytest.mark.parametrize("seed", range(200, 220))
def test_a_client_killed_at_many_instants_ends_in_the_same_bits(
    flock: Flock, undisturbed: str, trials: Trials, seed: int
) -> None:
    assert killed_client_run(flock, trials, seed, kills=4) == undisturbed


@pytest.mark.promise("R17")
def test_sigterm_parks_the_server_in_mid_round_and_the_run_goes_on(flock: Flock, undisturbed: str) -> None:
    server = flock.server(*RUN)
    present, absent = flock.client("c0,c1"), flock.client("c2")
    server.wait_for("round_committed", count=3)
    absent.signal(signal.SIGSTOP)  # no round can close now
    server.signal(signal.SIGTERM)
    assert server.ended(limit_s=10) == 0
    assert server.events("parked")
    assert not (flock.run_dir / "model.safetensors").exists()
    absent.signal(signal.SIGCONT)
    again = flock.server()
    assert [again.ended(), present.ended(), absent.ended()] == [0, 0, 0]
    assert flock.sha256() == undisturbed


@pytest.mark.promise("R17")
def test_sigterm_ends_a_client_in_mid_run_and_it_comes_back(flock: Flock, undisturbed: str) -> None:
    server = flock.server(*RUN)
    clients = [flock.client("c0,c1"), flock.client("c2")]
    server.wait_for("round_committed", count=3)
    clients[1].signal(signal.SIGTERM)
    assert clients[1].ended(limit_s=12) == 0
    clients[1] = flock.client("c2")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert flock.sha256() == undisturbed


@pytest.mark.promise("R1", "R5")
def test_both_ends_killed_together_end_in_the_same_bits(flock: Flock, undisturbed: str) -> None:
    server = flock.server(*RUN)
    clients = flock.clients("c0,c1", "c2")
    server.wait_for("round_committed", count=4)
    for program in (*clients, server):
        program.kill()
    server = flock.server()
    clients = flock.clients("c0,c1", "c2")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert flock.sha256() == undisturbed
