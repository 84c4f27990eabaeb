"""The five commands as typed: a server, and clients that are told nothing but where it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from edgeflock.lab.certs import join_file
from edgeflock.lab.certs.authority import Authority
from support.certificates import make
from support.processes import Flock, flock

RUN = ("--rounds=2", "--clients=4", "--max-clients-wait=60")


def served(folder: Path, clients: list[tuple[str, ...]], home: Path) -> tuple[str, list[str]]:
    """Serve a run to its end; return the hash of the model and the roster."""
    folder.mkdir()
    with flock(folder) as made:
        server = made.server("--method=fedmrur", *RUN)
        environ = {"XDG_STATE_HOME": str(home)}
        started = [
            made.start("fl-client", f"--server={made.address}", *flags, environ=environ) for flags in clients
        ]
        assert [program.ended() for program in (server, *started)] == [0] * (1 + len(clients))
        return made.sha256(), roster(made)


def roster(made: Flock) -> list[str]:
    return [name for (name,) in made.rows("SELECT client_id FROM seats ORDER BY seat")]


def test_four_clients_without_a_flag_are_the_same_four_again_and_leave_the_bits_of_named_ones(
    tmp_path: Path,
) -> None:
    first = served(tmp_path / "first", [()] * 4, tmp_path / "home")
    again = served(tmp_path / "again", [()] * 4, tmp_path / "home")
    told = served(tmp_path / "told", [("--ids=a,b,c,d",)], tmp_path / "home")
    assert again == first
    assert told == (first[0], ["a", "b", "c", "d"])
    assert [name.rpartition("-")[2] for name in first[1]] == ["1", "2", "3", "4"]


def test_a_killed_client_takes_its_seat_again_and_the_run_goes_on(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "home")}
    with flock(tmp_path) as made:
        server = made.server("--rounds=2", "--clients=2")
        one = made.start("fl-client", f"--server={made.address}", environ=environ)
        one.wait_for("client_started")
        one.kill()
        lives = [made.start("fl-client", f"--server={made.address}", environ=environ) for _ in range(2)]
        assert [program.ended() for program in (server, *lives)] == [0, 0, 0]
        assert [name.rpartition("-")[2] for name in roster(made)] == ["1", "2"]


def test_a_join_file_is_all_that_a_device_is_told(tmp_path: Path) -> None:
    """Here with the address beside it, for the server takes a free port."""
    files = make(tmp_path / "certs")
    authority = Authority.open(files.folder, timedelta(days=1))
    joins = [join_file.write(files.folder, name, authority.client(name), []) for name in ("a", "b")]
    with flock(tmp_path) as made:
        server = made.server("--rounds=1", "--clients=2", *files.demanding)
        environ = {"XDG_STATE_HOME": str(tmp_path / "home")}
        devices = [
            made.start("fl-client", f"--config={path}", f"--server={made.address}", environ=environ)
            for path in joins
        ]
        assert [program.ended() for program in (server, *devices)] == [0, 0, 0]
        assert roster(made) == ["a", "b"]
        assert (tmp_path / "home" / "edgeflock" / "a" / "identity.toml").exists()
