"""Where the dashboard may listen, and what is said when it may not."""

from __future__ import annotations

import sys

import pytest

from edgeflock.common.errors import BadValue, UsageError
from edgeflock.common.wire.listen import bound, listen_at
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import resolve
from edgeflock.server.web.guard import is_local


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "localhost:0", "[::1]:8080"])
def test_loopback_needs_no_consent(text: str) -> None:
    address = listen_at(text, insecure=False)
    assert address is not None
    assert address.target == text


@pytest.mark.parametrize(
    ("text", "insecure", "target"),
    [
        ("8080", False, "127.0.0.1:8080"),
        (":8080", False, "127.0.0.1:8080"),
        ("8080", True, "127.0.0.1:8080"),
        (":8080", True, "0.0.0.0:8080"),
    ],
)
def test_a_port_alone_is_one_of_this_machine(text: str, insecure: bool, target: str) -> None:
    address = listen_at(text, insecure)
    assert address is not None
    assert address.target == target


@pytest.mark.parametrize("text", [None, "off"])
def test_off_is_no_dashboard(text: str | None) -> None:
    assert listen_at(text, insecure=False) is None


@pytest.mark.parametrize("text", ["0.0.0.0:8080", "192.0.2.7:80", "[::]:80", "example.org:80"])
def test_beyond_this_machine_it_wants_consent_of_its_own(text: str) -> None:
    with pytest.raises(UsageError, match="--dashboard-insecure"):
        listen_at(text, insecure=False)
    assert listen_at(text, insecure=True) is not None


def test_consent_for_clients_is_none_for_viewers() -> None:
    config = ServerConfig(dashboard="0.0.0.0:8080", insecure=True)
    with pytest.raises(UsageError, match="reaches beyond this machine"):
        resolve(config)
    assert (
        resolve(ServerConfig(dashboard="0.0.0.0:8080", dashboard_insecure=True)).dashboard == "0.0.0.0:8080"
    )


@pytest.mark.parametrize("text", ["99999", "unix:/tmp/x", "localhost:99999", "http://localhost:80", "on"])
def test_what_is_no_address_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(BadValue, match=r"--dashboard is .*, allowed is"):
        listen_at(text, insecure=True)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r"--dashboard needs aiohttp, which is not installed: .*\[server\]'"):
        listen_at("127.0.0.1:0", insecure=False)


def test_a_taken_port_is_refused_and_a_free_one_is_the_same_as_before() -> None:
    address = listen_at("127.0.0.1:0", insecure=False)
    assert address is not None
    first, where = bound(address, "")
    with first, pytest.raises(UsageError, match="cannot be bound: Address already in use"):
        bound(where, "")
    again, same = bound(address, where.target)
    assert (again.getsockname()[1], same) == (where.port, where)
    other, another = bound(address, where.target)  # somebody has it now
    assert another.port not in (0, where.port)
    for listener in (again, other):
        listener.close()


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8080", "127.0.0.1:1", "127.8.8.8", "[::1]", "[::1]:80"]
)
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "10.0.0.1:80",
        "[::2]:80",
        "::1:80:",
        "a:b:c",
    ],
)
def test_foreign_names_are_not_answered(host: str) -> None:
    assert not is_local(host)


def test_a_host_that_is_not_there_is_a_sentence() -> None:
    address = listen_at("192.0.2.1:0", insecure=True)
    assert address is not None
    with pytest.raises(UsageError, match=r"--dashboard 192\.0\.2\.1:0 cannot be bound"):
        bound(address, "")
