"""The bytes in the books are those on the wire: compared with an interface that carries nothing else."""

from __future__ import annotations

import pytest

from faults.conftest import Figure
from support.commands import spawn_client, spawn_server
from support.namespaces import SERVER_IP, Cable, cable
from support.processes import Flock

OPEN = "--insecure"  # nobody else is on this cable
WORK = ("--rounds=3", "--steps=0", "--eval-every=0", "--model=mlp", "--seed=2", "--deadline=300")
LARGE = pytest.param("[4000,2730]", "c0,c1,c2", marks=pytest.mark.long)  # 403 MB each way
SIZES = pytest.mark.parametrize(("hidden", "ids"), [("[1500,1000]", "c0"), LARGE])  # 19 MB


def run(flock: Flock, laid: Cable, hidden: str, ids: str) -> None:
    """Let a run take place over the cable."""
    seats = f"--clients={ids.count(',') + 1}"
    flags = (seats, f"--listen={SERVER_IP}:0", OPEN, f"--model-arg=hidden={hidden}", *WORK)
    server = spawn_server(flock, laid.at_server(), *flags)
    client = spawn_client(flock, laid.at_client(), ids, OPEN)
    assert [server.ended(120), client.ended()] == [0, 0]


def compare(flock: Flock, figure: Figure, kind: str, wire: dict[str, int]) -> None:
    """Books of that kind and interface must be within 1 %."""
    for way, there in wire.items():
        ((here,),) = flock.rows(f"SELECT sum({kind}_{way}) FROM costs")
        figure(f"{kind} {way}, percent beside the interface", error := 100 * abs(here / there - 1))
        assert there > 10_000_000
        assert error <= 1, (way, here, there)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.promise("R14")
@SIZES
def test_message_bytes_are_what_the_kernel_hands_to_the_card(
    flock: Flock, figure: Figure, hidden: str, ids: str
) -> None:
    with cable(packets=False) as laid:
        run(flock, laid, hidden, ids)
        counted, beside = laid.counted(), laid.beside()
    for way in counted:  # how often a kernel acknowledges depends on how busy it is
        counted[way] -= beside[way].bare_acks + beside[way].sent_again
    compare(flock, figure, "message_bytes", counted)


@pytest.mark.promise("R14")
@SIZES
def test_wire_bytes_are_those_of_the_packets(flock: Flock, figure: Figure, hidden: str, ids: str) -> None:
    with cable(packets=True) as laid:
        run(flock, laid, hidden, ids)
        counted, beside = laid.counted(), laid.beside()
    for way, there in counted.items():
        figure(f"bare acknowledgements {way}, percent", 100 * beside[way].bare_acks / there)
        figure(f"lost on the cable and sent again {way}, percent", 100 * beside[way].sent_again / there)
        counted[way] -= beside[way].bare_acks + beside[way].sent_again
    compare(flock, figure, "wire_bytes", counted)
