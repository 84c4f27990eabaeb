"""Addresses as people write them."""

from __future__ import annotations

import pytest

from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import parse_address, require_trust


@pytest.mark.parametrize(
    ("text", "target", "local"),
    [
        ("127.0.0.1:9300", "127.0.0.1:9300", True),
        ("127.5.0.1:1", "127.5.0.1:1", True),
        ("localhost:9300", "localhost:9300", True),
        ("[::1]:9300", "[::1]:9300", True),
        ("unix:/run/x.sock", "unix:/run/x.sock", True),
        ("9300", "127.0.0.1:9300", True),
        (":9300", "127.0.0.1:9300", True),
        ("0.0.0.0:9300", "0.0.0.0:9300", False),
        ("[::]:65535", "[::]:65535", False),
        ("[2001:DB8::1]:9300", "[2001:db8::1]:9300", False),
        ("server.example:9300", "server.example:9300", False),
    ],
)
def test_an_address_is_read(text: str, target: str, local: bool) -> None:
    address = parse_address(text, "--listen")
    assert (address.target, address.local) == (target, local)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":",
        "65536",
        "93x",
        "host:",
        "host:x",
        "host:65536",
        "host:0",
        "::1:9300",
        "[::1]",
        "[x]:9300",
        "unix:",
        "a b:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--server is .*, allowed is "):
        parse_address(text, "--server")


def test_the_address_of_a_web_page_is_told_what_is_too_much() -> None:
    with pytest.raises(UsageError, match=r"^--server is 'http://h:1', allowed is .*, without http://$"):
        parse_address("http://h:1", "--server")


def test_a_colon_and_a_port_are_every_interface_where_that_is_asked_for() -> None:
    assert parse_address(":9300", "--listen", everywhere=True).target == "0.0.0.0:9300"
    assert parse_address("9300", "--listen", everywhere=True).target == "127.0.0.1:9300"


def test_port_0_is_for_listening_only() -> None:
    assert parse_address("127.0.0.1:0", "--listen", any_port=True).port == 0


def test_plain_text_beyond_this_machine_must_be_said() -> None:
    far = parse_address("10.0.0.1:9300", "--server")
    with pytest.raises(UsageError, match=r"--server 10\.0\.0\.1:9300 reaches beyond this machine"):
        require_trust(far, "--server", False, "--tls-ca")
    require_trust(far, "--server", True, "--tls-ca")
    require_trust(parse_address("[::1]:9300", "--server"), "--server", False, "--tls-ca")


@pytest.mark.parametrize(
    ("listened", "everywhere", "dialled"),
    [
        ("0.0.0.0:9300", True, "127.0.0.1:9300"),
        ("[::]:9300", True, "[::1]:9300"),
        ("192.0.2.1:9300", False, "192.0.2.1:9300"),
        ("unix:/run/fl", False, "unix:/run/fl"),
    ],
)
def test_what_listens_everywhere_is_dialled_at_the_loopback(
    listened: str, everywhere: bool, dialled: str
) -> None:
    address = parse_address(listened, "--listen")
    assert (address.everywhere, address.from_here.target) == (everywhere, dialled)
