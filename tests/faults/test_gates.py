"""Gates die, hang, are cut off or swapped, and so does their coordinator: one SHA-256, every update once."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from pathlib import Path

import pytest

from faults.conftest import RUN
from support import processes
from support.certificates import make
from support.commands import spawn, spawn_client, spawn_server
from support.namespaces import CLIENT_IP, SERVER_IP, cable
from support.processes import Flock, Program, run_to_the_end
from support.promises import Trials
from support.proxy import Proxy

SHORT_S = 0.06


def gate_pids(server: Program) -> dict[str, int]:
    """Return the process of every gate that lives now."""
    return {entry["gate"]: int(entry["pid"]) for entry in server.events("gate_started")}


def the_rest(flock: Flock, server: Program, clients: list[Program]) -> str:
    """See the run to its end; every member's every update has one verdict, and counts."""
    assert [server.ended(), *(client.ended() for client in clients)] == [0] * (1 + len(clients))
    verdicts = flock.rows("SELECT count(*), sum(verdict = 'counted') FROM outcomes")
    assert verdicts == [(120, 120)]
    return flock.sha256()


def moved_clients(clients: list[Program]) -> int:
    return sum(len(client.events("moved")) for client in clients)


@pytest.mark.promise("R1")
def test_gates_killed_in_the_midst_of_rounds_change_no_bit(
    flock: Flock, undisturbed: str, trials: Trials
) -> None:
    dice = random.Random(3)
    server = flock.server(*RUN, "--gates=2")
    clients = flock.clients("c0", "c1", "c2")
    for kill in range(3):
        with trials(f"kill {kill} of a gate"):
            server.wait_for("round_committed", count=3 * kill + dice.randint(1, 3))
            time.sleep(dice.uniform(0, SHORT_S))  # the instant is the test's input
            os.kill(gate_pids(server)[f"gate{kill % 2}"], signal.SIGKILL)
            server.wait_for("gate_ended", count=kill + 1)
    assert the_rest(flock, server, clients) == undisturbed
    assert moved_clients(clients) >= 3  # all were told of a gate
    assert flock.announced("gate_came")


@pytest.mark.long
@pytest.mark.promise("R1")
def test_a_coordinator_killed_again_and_again_finds_its_gates_spools(
    flock: Flock, undisturbed: str, trials: Trials
) -> None:
    dice = random.Random(5)
    server = flock.server(*RUN, "--gates=2")
    clients = flock.clients("c0", "c1", "c2")
    for kill in range(4):
        with trials(f"kill {kill} of the coordinator"):
            server.wait_for("round_committed", count=dice.randint(1, 3))
            time.sleep(dice.uniform(0, SHORT_S))
            server.kill()
            before = flock.decided()
            server = flock.server()
            assert before <= flock.decided()
    assert the_rest(flock, server, clients) == undisturbed
    assert flock.sent_again() == 0


@pytest.mark.long
@pytest.mark.promise("R1")
def test_a_gate_that_hangs_is_replaced_and_no_deadline_is_lost(flock: Flock, undisturbed: str) -> None:
    server = flock.server(*RUN, "--gates=2")
    clients = flock.clients("c0", "c1", "c2")
    server.wait_for("round_committed", count=2)
    os.kill(gate_pids(server)["gate0"], signal.SIGSTOP)
    server.wait_for("gate_hangs")
    assert the_rest(flock, server, clients) == undisturbed
    assert not server.events("deadline_passed")


@pytest.mark.long
@pytest.mark.promise("R1")
@pytest.mark.parametrize("count", [1, 4])
def test_as_many_gates_as_one_likes_end_in_the_same_bits(flock: Flock, undisturbed: str, count: int) -> None:
    server = flock.server(*RUN, f"--gates={count}")
    assert the_rest(flock, server, flock.clients("c0", "c1", "c2")) == undisturbed


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [
        ("--method=scaffold", "--codec=int8"),
        ("--method=fedadm",),
        ("--method=pfedmo",),
        ("--method=feddyn", "--codec=topk:0.1"),
        ("--method=fedavg", "--deadline=60", "--eval-clients=both"),
    ],
    ids=" ".join,
)
def test_seventy_clients_at_gates_end_in_the_bits_of_one_process(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """More than one node of the sum; methods with state, with two walks, with a server that trains."""
    run = ("--clients=70", "--rounds=2", "--seed=3", *flags)
    hosts = (",".join(f"c{number}" for number in range(35)), ",".join(f"c{n}" for n in range(35, 70)))
    ends = []
    for gates in (0, 2):
        folder = tmp_path / str(gates)
        folder.mkdir()
        ends.append(run_to_the_end(folder, (*run, f"--gates={gates}"), hosts))
    assert ends[0] == ends[1]


def by_hand(flock: Flock, coordinator: str, listen: str = "127.0.0.1:0", *flags: str) -> Program:
    """Start a gate as an operator does, on what might be another machine: it shares no files."""
    key = f"--key={flock.run_dir / 'gate.key'}"
    return flock.start("fl-gate", f"--coordinator={coordinator}", key, f"--listen={listen}", *flags)


def expecting(flock: Flock, *flags: str) -> tuple[Program, str]:
    """Start a coordinator that takes gates of other machines; return it, and where they attend."""
    port = free_port()
    server = flock.server(*RUN, f"--gate-listen=127.0.0.1:{port}", *flags)
    return server, f"127.0.0.1:{port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.long
@pytest.mark.promise("R1")
def test_a_gate_of_another_machine_hands_over_bytes_and_dies(flock: Flock, undisturbed: str) -> None:
    server, coordinator = expecting(flock)
    gates = [by_hand(flock, coordinator, "127.0.0.1:0", f"--name=g{number}") for number in range(2)]
    for gate in gates:
        gate.wait_for("gate_attends")
    clients = flock.clients("c0", "c1", "c2")
    server.wait_for("round_committed", count=3)
    gates[0].kill()
    server.wait_for("round_committed", count=6)
    again = by_hand(flock, coordinator, "127.0.0.1:0", "--name=g0")
    again.wait_for("gate_attends")
    gates[1].kill()
    assert the_rest(flock, server, clients) == undisturbed
    assert moved_clients(clients) >= 3


@pytest.mark.long
def test_with_tls_gates_see_certificates_and_forward_whose_they_are(
    flock: Flock, undisturbed: str, tmp_path: Path
) -> None:
    files = make(tmp_path / "certificates", "c0", "c1", "c2")
    server, coordinator = expecting(flock, "--gates=1", *files.demanding)
    port = coordinator.rpartition(":")[2]
    gate = by_hand(
        flock,
        f"localhost:{port}",
        "127.0.0.1:0",
        "--name=g0",
        *files.demanding,
        f"--coordinator-ca={files.folder / 'ca.pem'}",
    )
    gate.wait_for("gate_attends")
    there = gate.events("gate_listening")[0]["address"]
    wrong = flock.client("c2", *files.proving("c0"), f"--server={there}")
    assert wrong.ended() == 1
    assert "your certificate is for c0, not for a client 'c2'" in wrong.sentence()
    clients = [flock.client(name, *files.proving(name)) for name in ("c0", "c1", "c2")]
    assert the_rest(flock, server, clients) == undisturbed
    at = {entry["server"] for client in clients for entry in client.events("connected")}
    assert len(at) == 2  # both gates


@pytest.mark.long
@pytest.mark.promise("R1")
def test_a_cut_between_gate_and_coordinator_costs_no_update(flock: Flock, undisturbed: str) -> None:
    server, coordinator = expecting(flock)
    with Proxy(lambda: coordinator) as between:
        gate = by_hand(flock, between.address, "127.0.0.1:0", "--name=g0")
        gate.wait_for("gate_attends")
        clients = flock.clients("c0", "c1", "c2")
        for cut in range(3):
            server.wait_for("round_committed", count=2 + 4 * cut)
            between.reset_all()
        assert the_rest(flock, server, clients) == undisturbed
    assert gate.events("coordinator_not_reached")


@pytest.mark.long
@pytest.mark.promise("R1")
def test_a_client_that_changes_gates_in_the_midst_of_an_upload_counts_once(
    flock: Flock, undisturbed: str
) -> None:
    server, coordinator = expecting(flock)
    other = by_hand(flock, coordinator, "127.0.0.1:0", "--name=g1")
    other.wait_for("gate_attends")
    port = free_port()
    with Proxy(lambda: f"127.0.0.1:{port}") as slow:
        slow.rate = 40_000
        flags = (f"--listen=127.0.0.1:{port}", f"--advertise={slow.address}", "--name=g0")
        gate = by_hand(flock, coordinator, f"127.0.0.1:{port}", *flags[1:])
        gate.wait_for("gate_attends")
        clients = flock.clients("c0", "c1", "c2")
        slow.wait_for("up", 40_000)
        gate.kill()
        assert the_rest(flock, server, clients) == undisturbed


@pytest.mark.long
@pytest.mark.promise("R1")
def test_gates_of_other_machines_outlive_their_coordinator(
    flock: Flock, undisturbed: str, trials: Trials
) -> None:
    server, coordinator = expecting(flock)
    gate = by_hand(flock, coordinator, "127.0.0.1:0", "--name=g0")
    gate.wait_for("gate_attends")
    clients = flock.clients("c0", "c1", "c2")
    for kill in range(2):
        with trials(f"kill {kill} of the coordinator"):
            server.wait_for("round_committed", count=3)
            server.kill()
            server = flock.server()
            gate.wait_for("gate_attends", count=2 + kill)
    assert the_rest(flock, server, clients) == undisturbed


@pytest.mark.long
@pytest.mark.promise("R1")
def test_clients_leave_a_gate_of_another_machine_that_hangs(flock: Flock, undisturbed: str) -> None:
    server, coordinator = expecting(flock)
    gates = [by_hand(flock, coordinator, "127.0.0.1:0", f"--name=g{number}") for number in range(2)]
    for gate in gates:
        gate.wait_for("gate_attends")
    clients = flock.clients("c0", "c1", "c2")
    server.wait_for("round_committed", count=3)
    gates[0].signal(signal.SIGSTOP)
    assert the_rest(flock, server, clients) == undisturbed
    assert not flock.announced("clients_missed")


@pytest.mark.long
@pytest.mark.promise("R1")
def test_a_gate_in_another_network_over_tls_loses_its_coordinator_for_a_while(
    flock: Flock, undisturbed: str, tmp_path: Path
) -> None:
    """Clients are told of the gate alone; packets between it and the coordinator vanish for a while."""
    files = make(tmp_path / "certificates", "c0", "c1", "c2", names=(SERVER_IP, CLIENT_IP))
    with cable(packets=False) as laid:
        takes = (f"--listen={SERVER_IP}:9300", f"--gate-listen={SERVER_IP}:9299", *files.demanding)
        server = spawn_server(flock, laid.at_server(), *RUN, *takes)
        flags = (f"--coordinator={SERVER_IP}:9299", f"--coordinator-ca={files.folder / 'ca.pem'}")
        key = f"--key={flock.run_dir / 'gate.key'}"
        listen = f"--listen={CLIENT_IP}:9301"
        gate = spawn(flock, laid.at_client(), "fl-gate", key, *flags, listen, *files.demanding)
        gate.wait_for("gate_attends")
        at = f"{CLIENT_IP}:9301"
        given = [(name, *files.proving(name), f"--server={at}") for name in ("c0", "c1", "c2")]
        clients = [spawn_client(flock, laid.at_client(), *flags) for flags in given]
        server.wait_for("round_committed", count=3)
        laid.part("up", "down")
        time.sleep(3.0)  # the length of the cut is the test's input
        laid.heal("up", "down")
        assert the_rest(flock, server, clients) == undisturbed
    assert {entry["server"] for client in clients for entry in client.events("connected")} == {at}


@pytest.mark.long
def test_a_model_comes_back_by_way_of_a_gate_and_costs_what_it_costs_without(tmp_path: Path) -> None:
    totals = []
    for gates in (0, 1):
        with processes.flock(tmp_path / str(gates)) as made:
            made.folder.mkdir()
            server = made.server("--clients=2", "--rounds=2", "--seed=3", f"--gates={gates}")
            client = made.client("c0,c1", f"--save-model={made.folder}/kept-{{id}}")
            assert [server.ended(), client.ended()] == [0, 0]
            assert len(list(made.folder.glob("kept-*/current/*"))) >= 2
            query = "SELECT round, seat, bytes_down, bytes_up FROM costs ORDER BY round, seat"
            totals.append(made.rows(query))
    assert totals[0] == totals[1]


def test_a_gate_that_the_coordinator_does_not_know_says_so_in_a_sentence(flock: Flock) -> None:
    (flock.folder / "other").write_text("a key of nobody\n")
    _, coordinator = expecting(flock)
    gate = flock.start("fl-gate", f"--coordinator={coordinator}", f"--key={flock.folder / 'other'}")
    assert gate.ended() == 2
    assert "this fl-server does not know a gate of that key" in gate.sentence()
