"""What a viewer reads of a run before it has begun: its name, and what to type on a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_dir import RUN_TOML
from edgeflock.server.files.run_toml import to_toml
from edgeflock.server.web.about import About, read


def about(folder: Path, config: ServerConfig) -> About:
    (folder / RUN_TOML).write_text(to_toml(config))
    return read(folder)


def test_it_names_method_data_model_and_clients(tmp_path: Path) -> None:
    found = about(
        tmp_path, ServerConfig(method="fedtrip", dataset="digits", partition="dirichlet:0.5", clients=8)
    )
    assert (found.method, found.data, found.model, found.clients) == (
        "fedtrip",
        "digits, dirichlet:0.5",
        "mlp",
        8,
    )


@pytest.mark.parametrize(
    ("options", "address", "command"),
    [
        ({}, "127.0.0.1:9300", "fl-client --server 127.0.0.1:9300"),
        ({"insecure": True}, "0.0.0.0:9300", "fl-client --server ADDRESS-OF-THIS-MACHINE:9300 --insecure"),
        (
            {"dataset": None, "eval_data": Path("t.npz")},
            "[::1]:1",
            "fl-client --server [::1]:1 --data FILE.npz",
        ),
        ({"tls_cert": Path("s.pem")}, "localhost:1", "fl-client --server localhost:1 --tls-ca ca.pem"),
        (
            {"tls_cert": Path("s.pem"), "tls_client_ca": Path("ca.pem"), "model": "mine:factory"},
            "192.0.2.1:1",
            "fl-client --config DEVICE.toml --model mine:factory",
        ),
        ({}, "", ""),
    ],
)
def test_the_command_has_the_flags_that_every_device_needs(
    tmp_path: Path, options: dict[str, object], address: str, command: str
) -> None:
    assert about(tmp_path, ServerConfig(**options)).command(address) == command  # type: ignore[arg-type]


def test_of_a_run_that_has_not_begun_nothing_is_known(tmp_path: Path) -> None:
    assert read(tmp_path) == About()
    (tmp_path / RUN_TOML).write_text("half of i")
    assert read(tmp_path) == About()
