"""TLS between real processes: the same bits, who is let in, what is said of bad certificates."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from faults.test_clocks import SHORT, faked, jump_to
from support import processes
from support.certificates import EXPIRED, Set, make
from support.commands import spawn_client, spawn_server
from support.processes import Flock, Program

EXPIRY = "the server's certificate has expired"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Set:
    return make(tmp_path_factory.mktemp("certificates"), "c0", "c1")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the final model of SHORT, without TLS."""
    return processes.run_to_the_end(tmp_path_factory.mktemp("plain"), SHORT, ("c0", "c1"))


def refused(client: Program) -> str:
    """Return what a client says that ends with exit code 1."""
    assert client.ended() == 1
    return client.sentence()


def test_with_certificates_on_both_sides_the_bits_are_the_same(flock: Flock, files: Set, plain: str) -> None:
    server = flock.server(*SHORT, *files.demanding)
    clients = [flock.client(name, *files.proving(name)) for name in ("c0", "c1")]
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert flock.sha256() == plain
    assert server.events("listening")[0]["transport"] == "tls, with certificates of clients"


def test_a_certificate_of_a_host_is_good_for_its_clients(flock: Flock, files: Set) -> None:
    server = flock.server("--clients=2", "--rounds=1", *files.demanding)
    host = flock.client("c0-0,c0-1", *files.proving("c0"))
    assert [server.ended(), host.ended()] == [0, 0]


def test_nobody_takes_another_clients_seat(flock: Flock, files: Set) -> None:
    server = flock.server(*SHORT, *files.demanding)
    sentence = refused(flock.client("c1", *files.proving("c0")))
    assert "your certificate is for c0, not for a client 'c1'" in sentence
    clients = [flock.client(name, *files.proving(name)) for name in ("c0", "c1")]
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]


def test_a_client_without_a_certificate_is_told_what_may_be_missing(flock: Flock, files: Set) -> None:
    flock.server(*SHORT, *files.demanding)
    client = flock.client("c0", *files.trusting, "--give-up-after=1")
    assert "it may ask for a certificate: give --tls-cert and --tls-key" in refused(client)


def test_a_server_of_another_authority_is_not_trusted(flock: Flock, files: Set, tmp_path: Path) -> None:
    others = make(tmp_path / "others")
    flock.server(*SHORT, *others.server)
    assert "no authority that this client trusts vouches for" in refused(flock.client("c0", *files.trusting))


def test_a_client_may_trust_whom_its_system_trusts(flock: Flock, files: Set) -> None:
    server = flock.server("--clients=1", "--rounds=1", *files.server)
    environ = {"SSL_CERT_FILE": str(files.folder / "ca.pem")}
    client = spawn_client(flock, (), "c0", "--tls", environ=environ)
    assert [server.ended(), client.ended()] == [0, 0]


def test_a_server_of_another_name_is_not_trusted(flock: Flock, tmp_path: Path) -> None:
    elsewhere = make(tmp_path / "elsewhere", names=("elsewhere.example",))
    flock.server(*SHORT, *elsewhere.server)
    sentence = refused(flock.client("c0", *elsewhere.trusting))
    assert "its certificate is for another name than 127.0.0.1" in sentence


def test_one_end_with_tls_and_one_without_find_words(flock: Flock, files: Set) -> None:
    server = flock.server(*SHORT)
    assert "it does not speak TLS" in refused(flock.client("c0", *files.trusting))
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    flock.server(*files.server)
    assert "if it speaks TLS, give --tls-ca" in refused(flock.client("c1", "--give-up-after=1"))


def test_an_expired_certificate_is_refused_at_the_start(flock: Flock, tmp_path: Path) -> None:
    expired = make(tmp_path / "expired", valid=EXPIRED)
    server = flock.begin_server(*SHORT, *expired.server)
    assert server.ended() == 2
    assert "has expired on" in server.sentence()


@pytest.mark.promise("R12")
def test_when_the_clock_passes_the_expiry_the_run_goes_on(flock: Flock, files: Set, plain: str) -> None:
    """Connections that stand stay; that no new one can be made, the server says once."""
    clock = flock.folder / "clock"
    environ = faked(clock)
    server = spawn_server(flock, (), *SHORT, *files.server, environ=environ)
    clients = [
        spawn_client(flock, (), "c0", *files.trusting, environ=environ),
        flock.client("c1", *files.trusting),
    ]
    server.wait_for("round_committed", count=2)
    clients[1].signal(signal.SIGSTOP)  # the round is open for as long as the jump takes to be seen
    jump_to(clock, "+3650d")
    told = server.wait_for("certificate")
    clients[1].signal(signal.SIGCONT)
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
    assert "has expired on" in told["reason"]
    assert len(server.events("certificate")) == 1
    assert flock.announced("certificate") == [{"reason": told["reason"]}]
    assert flock.sha256() == plain


@pytest.mark.promise("R12")
def test_a_device_whose_clock_is_past_the_expiry_says_so_and_comes_when_it_is_set(
    flock: Flock, files: Set, plain: str
) -> None:
    clock = flock.folder / "clock"
    environ = faked(clock)
    clock.write_text("+3650d\n")
    server = flock.server(*SHORT, *files.server)
    late = spawn_client(flock, (), "c0", *files.trusting, environ=environ)
    other = flock.client("c1", *files.trusting)
    assert late.wait_for("server_not_reached")["reason"].startswith(EXPIRY)
    clock.write_text("+0\n")
    assert [server.ended(), late.ended(), other.ended()] == [0, 0, 0]
    assert flock.sha256() == plain
    reasons = {event["reason"].partition(":")[0] for event in late.events("server_not_reached")}
    assert reasons == {EXPIRY}
