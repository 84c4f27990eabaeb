"""The files of TLS: what is read of them, what is refused, what a client makes of gRPC's words."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from edgeflock.client.config import ClientConfig
from edgeflock.client.config import resolve as resolve_client
from edgeflock.client.trust import Trust
from edgeflock.common.address import Address
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.common.tls import Pair, read_authority, read_pair
from edgeflock.lab.authority import Authority
from edgeflock.lab.certs import certs
from edgeflock.server import certificates
from edgeflock.server.config import ServerConfig
from edgeflock.server.resolve import resolve
from support.certificates import EXPIRED, make

AT = Address("192.0.2.1", 9300)
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("certificates"), "c0").folder


def pair_of(folder: Path, name: str) -> Pair:
    pair = read_pair(folder / f"{name}.pem", folder / f"{name}-key.pem")
    assert pair is not None
    return pair


@pytest.mark.parametrize("days", [1, 365, 36_500])  # the last one ends after 2050: another kind of date
def test_the_dates_are_those_of_the_certificate(tmp_path: Path, days: int) -> None:
    Authority.open(tmp_path, timedelta(days=days)).server(("localhost",))
    known = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    pair = pair_of(tmp_path, "server")
    assert (pair.begins, pair.ends) == (known.not_valid_before_utc, known.not_valid_after_utc)


def test_outside_its_dates_a_pair_says_so(folder: Path) -> None:
    pair = pair_of(folder, "server")
    assert not pair.outdated(NOW)
    assert pair.outdated(NOW + timedelta(days=91)).startswith("has expired on 20")
    assert pair.outdated(NOW - timedelta(days=1)).startswith("is not valid before 20")


def test_a_key_is_not_shown(folder: Path) -> None:
    assert "PRIVATE" not in repr(pair_of(folder, "server"))


def test_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    keys = sorted(folder.glob("*-key.pem"))
    assert [key.name for key in keys] == ["ca-key.pem", "client-c0-key.pem", "server-key.pem"]
    assert [key.stat().st_mode & 0o777 for key in keys] == [0o600] * 3


@pytest.mark.parametrize(
    ("certificate", "key", "sentence"),
    [
        ("server.pem", None, "--tls-cert and --tls-key go together"),
        (None, "server-key.pem", "--tls-cert and --tls-key go together"),
        ("server.pem", "no.pem", "--tls-key .*no.pem' cannot be read: No such file"),
        ("server.pem", "client-c0-key.pem", "is not the key of --tls-cert"),
        ("server-key.pem", "server-key.pem", "--tls-cert is .*, allowed is a PEM file with a certificate"),
        ("server.pem", "server.pem", "--tls-key is .*, allowed is a PEM file with the private key"),
        ("server.pem", "locked.pem", "allowed is a key without a password"),
    ],
)
def test_files_that_are_no_pair_are_refused(
    folder: Path, certificate: str | None, key: str | None, sentence: str
) -> None:
    (folder / "locked.pem").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match=sentence):
        read_pair(folder / certificate if certificate else None, folder / key if key else None)


@pytest.mark.parametrize("content", [b"", b"no certificate", bytes(range(100, 200))])
def test_a_file_without_certificates_is_no_authority(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(UsageError, match=r"--tls-ca is .*, allowed is a PEM file with certificates"):
        read_authority(tmp_path / "ca.pem", "--tls-ca")


def test_the_authority_is_used_again(folder: Path) -> None:
    before = (folder / "ca.pem").read_bytes()
    Authority.open(folder, timedelta(days=1)).client("c9")
    assert (folder / "ca.pem").read_bytes() == before
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    assert len(context.get_ca_certs()) == 1


def test_a_folder_with_another_key_is_no_authority(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    (tmp_path / "ca-key.pem").write_bytes((folder / "server-key.pem").read_bytes())
    with pytest.raises(UsageError, match=r"is not the key of ca\.pem"):
        Authority.open(tmp_path, timedelta(days=1))


# ---------------------------------------------------------------------------------------------- the flags


def test_with_a_certificate_a_server_may_listen_everywhere(folder: Path) -> None:
    certificate, key = folder / "server.pem", folder / "server-key.pem"
    config = resolve(ServerConfig(listen="0.0.0.0:9300", tls_cert=certificate, tls_key=key))
    assert certificates.read(config) is not None


def test_flags_that_contradict_each_other_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="--tls-client-ca needs --tls-cert"):
        resolve(ServerConfig(tls_client_ca=folder / "ca.pem"))
    certificate, key = folder / "server.pem", folder / "server-key.pem"
    with pytest.raises(UsageError, match="--insecure is for plain text"):
        resolve(ServerConfig(tls_cert=certificate, tls_key=key, insecure=True))


def test_a_server_does_not_start_with_an_expired_certificate(tmp_path: Path) -> None:
    make(tmp_path, valid=EXPIRED)
    certificate, key = tmp_path / "server.pem", tmp_path / "server-key.pem"
    with pytest.raises(UsageError, match=r"--tls-cert .* has expired on .*, and this machine's clock says"):
        resolve(ServerConfig(tls_cert=certificate, tls_key=key))


def test_the_operator_hears_of_the_end_before_and_after_it(folder: Path) -> None:
    pair = pair_of(folder, "server")
    assert not certificates.notice(pair, NOW)
    assert certificates.notice(pair, pair.ends - timedelta(days=13)).startswith("ends on 20")
    assert certificates.notice(pair, pair.ends + timedelta(days=1)).startswith("has expired on 20")


def test_any_file_of_tls_turns_it_on_at_a_client(folder: Path) -> None:
    config = resolve_client(ClientConfig(server="192.0.2.1:9300", tls_ca=folder / "ca.pem"))
    assert config.tls
    assert Trust.of(config).credentials() is not None
    assert Trust.of(resolve_client(ClientConfig())).credentials() is None


def test_a_client_cannot_be_told_both(folder: Path) -> None:
    with pytest.raises(EdgeflockError, match="--insecure is for plain text"):
        resolve_client(ClientConfig(tls=True, insecure=True))


# ------------------------------------------------------------------------------- what a client makes of it

FAILED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:192.0.2.1:9300: "
VERIFY = FAILED + "Ssl handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED: "


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (VERIFY + "certificate has expired", "the server's certificate has expired: it has to be renewed"),
        (VERIFY + "certificate is not yet valid", "the server's certificate is not valid yet"),
    ],
)
def test_dates_may_pass(details: str, words: str) -> None:
    assert Trust(AT, tls=True).passing(details).startswith(words)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (VERIFY + "unable to get local issuer certificate", "no authority that this client trusts"),
        (VERIFY + "self signed certificate", "no authority that this client trusts"),
        (FAILED + "Ssl handshake failed: BAD_SIGNATURE: certificate signature failure", "no authority that"),
        (FAILED + "Peer name 192.0.2.1 is not in peer certificate", "another name than 192.0.2.1"),
        (FAILED + "Ssl handshake failed: WRONG_VERSION_NUMBER: Invalid", "it does not speak TLS"),
    ],
)
def test_what_waiting_does_not_change_is_said(details: str, words: str) -> None:
    assert words in Trust(AT, tls=True).wrong(details)
    assert not Trust(AT, tls=True).passing(details)
    assert not Trust(AT).wrong(details)  # without TLS nothing of this can come


def test_a_connection_that_is_closed_at_once_gets_a_hint(folder: Path) -> None:
    details = FAILED + "Socket closed"
    pair = pair_of(folder, "client-c0")
    assert "give --tls-ca" in Trust(AT).hint(details)
    assert "give --tls-cert" in Trust(AT, tls=True).hint(details)
    assert "--tls-client-ca" in Trust(AT, tls=True, pair=pair).hint(details)
    assert not Trust(AT).hint(FAILED + "Connection refused")


def test_an_expired_certificate_of_the_device_itself_is_named(tmp_path: Path) -> None:
    make(tmp_path, "c0", valid=EXPIRED)
    trust = Trust(AT, tls=True, pair=pair_of(tmp_path, "client-c0"))
    assert trust.passing(FAILED + "Socket closed").startswith("--tls-cert has expired on ")


# ------------------------------------------------------------------------------------------ fl-lab certs


def test_the_command_makes_what_both_ends_read(tmp_path: Path) -> None:
    said = CliRunner().invoke(
        certs, [str(tmp_path), "--server", "localhost", "--client", "c0", "--days", "2"]
    )
    assert said.exit_code == 0, said.output
    assert [line.split()[0] for line in said.output.splitlines()] == ["authority", *["certificate"] * 2]
    assert read_authority(tmp_path / "ca.pem", "--tls-ca")
    assert timedelta(days=1) < pair_of(tmp_path, "client-c0").ends - NOW < timedelta(days=3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to make: give --server NAME or --client ID"),
        (["--client", "a/b"], "--client is 'a/b', allowed is a client id"),
        (["--server", "ü"], "--server is 'ü', allowed is a host name or an IP address"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    said = CliRunner().invoke(certs, [str(tmp_path), *arguments])
    assert isinstance(said.exception, UsageError)
    assert str(said.exception).startswith(sentence)
