"""The client's configuration: ids, own data, state directory, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeflock.client.config import ClientConfig, data_path, hosted_ids, resolve, state_home
from edgeflock.common.errors import EdgeflockError


def test_one_client_is_called_as_it_is_told() -> None:
    assert hosted_ids(ClientConfig(id="pi-7")) == ("pi-7",)


def test_a_client_without_a_name_gets_one_in_its_state_directory() -> None:
    assert hosted_ids(ClientConfig()) == ()


def test_hosted_clients_are_numbered() -> None:
    config = ClientConfig(id="host0", host_clients=4)
    assert hosted_ids(config) == ("host0-0", "host0-1", "host0-2", "host0-3")


def test_ids_name_all_hosted_clients() -> None:
    assert hosted_ids(ClientConfig(ids=("c3", "c4"))) == ("c3", "c4")


@pytest.mark.parametrize(
    ("template", "client_id", "path"),
    [
        ("x.npz", "c3", "x.npz"),
        ("d/{id}.npz", "host0-3", "d/host0-3.npz"),
        ("d/{index}-{id}.npz", "host0-12", "d/12-host0-12.npz"),
    ],
)
def test_the_path_of_own_data_may_name_the_client(template: str, client_id: str, path: str) -> None:
    assert data_path(ClientConfig(data=Path(template)), client_id) == Path(path)


def test_the_state_lies_where_the_desktop_standard_says(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    assert resolve(ClientConfig(id="pi"), environ).state_dir == tmp_path / "edgeflock" / "pi"
    assert resolve(ClientConfig(ids=("c3", "c4")), environ).state_dir == tmp_path / "edgeflock" / "c3"
    assert resolve(ClientConfig(state_dir=Path("here")), environ).state_dir == Path("here")


def test_a_relative_state_home_is_ignored_as_the_standard_says() -> None:
    assert state_home({"XDG_STATE_HOME": "somewhere"}) == Path.home() / ".local" / "state" / "edgeflock"


def test_without_a_name_and_a_directory_a_client_takes_a_seat_when_it_starts() -> None:
    assert resolve(ClientConfig(), {"XDG_STATE_HOME": "/somewhere"}).state_dir is None


def test_a_user_without_a_home_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(EdgeflockError, match="this user has no home directory: give --state-dir, or set"):
        state_home({})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"server": "host"}, "--server is 'host', allowed is host:port"),
        ({"server": "10.0.0.1:9"}, "--server 10.0.0.1:9 reaches beyond this machine without encryption"),
        ({"id": "a/b"}, "--id is 'a/b', allowed is 1 to 64 letters"),
        ({"id": ".."}, "--id is '..', allowed is 1 to 64 letters"),
        ({"id": "x" * 63, "host_clients": 2}, "--id is 'xxx"),
        ({"ids": ("a", "a")}, "--ids is 'a,a', allowed is every id once"),
        ({"ids": ("a",), "id": "b"}, "--ids names all hosted clients"),
        ({"ids": ("a",), "host_clients": 2}, "--ids names all hosted clients"),
        ({"host_clients": 0}, "--host-clients is 0, allowed is an integer from 1"),
        ({"threads": 0}, "--threads is 0, allowed is an integer from 1"),
        ({"device": "gpu"}, "--device is 'gpu', allowed is auto, cpu, cuda, cuda:N or mps"),
        ({"model": "mlp"}, "--model is 'mlp', allowed is package.module:factory"),
        ({"data": Path("no-such-file.npz")}, "--data 'no-such-file.npz' does not exist"),
        ({"data": Path("{index}.npz"), "id": "pi"}, "--data is '{index}.npz', allowed is {index} only if"),
        ({"data_root": Path("no-such-folder")}, "--data-root 'no-such-folder' is not a directory"),
        ({"give_up_after": 0.0}, "--give-up-after is 0.0, allowed is a time > 0"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EdgeflockError) as caught:
        resolve(ClientConfig(**values))
    assert str(caught.value).startswith(sentence)
    assert caught.value.exit_code == 2
