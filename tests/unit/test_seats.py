"""Seats of a machine: every living client has one to itself, a freed one is taken again, by the same id."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from structlog.testing import capture_logs

from edgeflock.client.keeping.statedir import StateDir, Unwritable, take_seat
from edgeflock.common.wire.address import parse_address


def seat(home: Path, server: str = "127.0.0.1:9300") -> StateDir:
    return take_seat(home, parse_address(server, "--server"))


def test_living_clients_have_seats_of_their_own_and_a_freed_one_is_taken_again(tmp_path: Path) -> None:
    first, second, third = (seat(tmp_path) for _ in range(3))
    assert [state.path.name for state in (first, second, third)] == ["default", "default-2", "default-3"]
    second.close()
    again = seat(tmp_path)
    assert (again.path, again.identity) == (second.path, second.identity)
    for state in (first, again, third):
        state.close()


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ("127.0.0.1:9300", "port 9300 here"),
        ("localhost:9300", "port 9300 here"),
        ("192.0.2.7:9300", "192.0.2.7:9300"),
        ("unix:/run/fl.sock", "unix:/run/fl.sock"),
    ],
)
def test_a_seat_is_taken_again_by_who_comes_to_the_same_server(
    tmp_path: Path, server: str, where: str
) -> None:
    """Two of one port on other machines are others; one of this machine has several names."""
    others = ("192.0.2.8:9300", "unix:/run/other.sock")
    places = [seat(tmp_path, name) for name in (*others, server)]
    assert (places[2].path / "server").read_text() == where
    for state in places:
        state.close()
    again = seat(tmp_path, server)
    assert again.path == places[2].path
    again.close()


def test_those_who_start_at_the_same_instant_take_seats_without_a_gap(tmp_path: Path) -> None:
    seat(tmp_path).close()
    together = Barrier(8)

    def start(_: int) -> StateDir:
        together.wait(10)
        return seat(tmp_path)

    with ThreadPoolExecutor(8) as starters:
        taken = list(starters.map(start, range(8)))
    names = sorted(state.path.name for state in taken)
    for state in taken:
        state.close()
    assert names == ["default", *(f"default-{number}" for number in range(2, 9))]


def test_ids_tell_machine_and_seat(tmp_path: Path) -> None:
    """{index} in --data is the seat's number; another machine has other ids."""
    here = [seat(tmp_path / "a") for _ in range(2)]
    there = seat(tmp_path / "b")
    machine = here[0].identity.client_id.removesuffix("-1")
    assert here[1].identity.client_id == f"{machine}-2"
    assert there.identity.client_id != f"{machine}-1"
    for state in (*here, there):
        state.close()


def test_a_seat_that_was_emptied_gets_its_id_back(tmp_path: Path) -> None:
    first = seat(tmp_path)
    first.close()
    (first.path / "identity.toml").unlink()
    again = seat(tmp_path)
    assert again.identity.client_id == first.identity.client_id
    assert again.identity.instance != first.identity.instance
    again.close()


def test_clients_of_two_servers_find_their_own_seats_again(tmp_path: Path) -> None:
    """Whichever are started first: with an id of the other run they would be strangers there."""
    a, b = seat(tmp_path, "127.0.0.1:9300"), seat(tmp_path, "127.0.0.1:9301")
    a.close()
    b.close()
    again = [seat(tmp_path, "localhost:9301"), seat(tmp_path, "127.0.0.1:9300")]
    assert [state.path for state in again] == [b.path, a.path]
    for state in again:
        state.close()


def test_a_server_that_has_moved_finds_the_same_clients(tmp_path: Path) -> None:
    first = seat(tmp_path, "192.0.2.1:9300")
    first.close()
    moved = seat(tmp_path, "192.0.2.7:9300")
    assert moved.identity == first.identity
    moved.close()


def test_an_identity_that_is_there_already_stays(tmp_path: Path) -> None:
    StateDir.open(tmp_path / "default", "client-0000abcd").close()
    state = seat(tmp_path)
    assert state.identity.client_id == "client-0000abcd"
    state.close()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"nonsense", b'id = "a"\n'])
def test_a_damaged_seat_gets_its_id_back_and_is_named(tmp_path: Path, content: bytes) -> None:
    """With another id the client would be a stranger to a run whose seats are taken."""
    first = seat(tmp_path)
    first.close()
    (tmp_path / "default" / "identity.toml").write_bytes(content)
    with capture_logs() as logs:
        again = seat(tmp_path)
    assert (again.path, again.identity.client_id) == (first.path, first.identity.client_id)
    assert [(line["event"], "default/identity.toml" in line["reason"]) for line in logs] == [
        ("identity_renewed", True)
    ]
    again.close()


@pytest.mark.parametrize("name", ["machine", "default/server"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 100])
def test_a_damaged_note_costs_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    first = seat(tmp_path)
    first.close()
    (tmp_path / name).write_bytes(content)
    again = seat(tmp_path)
    assert again.identity == first.identity
    again.close()


def test_a_home_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match=f"state directory {tmp_path}/file cannot be written: "):
        seat(tmp_path / "file")


def test_a_seat_that_cannot_be_made_is_one_sentence_and_no_endless_search(tmp_path: Path) -> None:
    (tmp_path / "default").write_text("")
    with pytest.raises(Unwritable, match=f"state directory {tmp_path}/default cannot be written: "):
        seat(tmp_path)


@pytest.mark.parametrize("name", ["default-1", "default-02", "default-x", "default-9999999999", "pi"])
def test_other_directories_are_no_seats(tmp_path: Path, name: str) -> None:
    StateDir.open(tmp_path / name, name).close()
    (tmp_path / name / "server").write_text("port 9300 here")
    state = seat(tmp_path)
    assert state.path.name == "default"
    state.close()
