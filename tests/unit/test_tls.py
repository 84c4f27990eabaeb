"""The files of TLS: what is read of them, what is refused, what a client makes of gRPC's words."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from cryptography import x509

from edgeflock.client.config import ClientConfig
from edgeflock.client.config import resolve as resolve_client
from edgeflock.client.link.trust import Trust
from edgeflock.common.command.options import from_file
from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.common.wire import certificate
from edgeflock.common.wire.address import Address
from edgeflock.common.wire.tls import Pair, read_authority, read_pair
from edgeflock.lab.certs.authority import Authority
from edgeflock.lab.certs.command import certs
from edgeflock.server.config import ServerConfig
from edgeflock.server.service import certificates
from edgeflock.server.start.resolve import resolve
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


def test_names_are_the_common_one_and_the_alternative_ones(folder: Path) -> None:
    assert pair_of(folder, "client-c0").names == ("c0",)
    assert pair_of(folder, "server").names == ("server", "localhost")  # and an address, which is no name


def unreadable(der: bytes) -> bool:
    try:
        certificate.read(der)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("content", [b"", b"0", b"0\x82", bytes(range(256)), b"0\x030\x01\x02"])
def test_what_is_no_certificate_is_refused(content: bytes) -> None:
    assert unreadable(content)


def test_a_certificate_that_is_cut_anywhere_is_refused(folder: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert((folder / "server.pem").read_text())
    assert certificate.read(der).names[0] == "server"
    for length in range(0, len(der), 7):
        assert unreadable(der[:length])


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
    ("first", "key", "sentence"),
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
    folder: Path, first: str | None, key: str | None, sentence: str
) -> None:
    (folder / "locked.pem").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match=sentence):
        read_pair(folder / first if first else None, folder / key if key else None)


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
    first, key = folder / "server.pem", folder / "server-key.pem"
    config = resolve(ServerConfig(listen="0.0.0.0:9300", tls_cert=first, tls_key=key))
    assert certificates.read(config) == certificates.Certificates(pair_of(folder, "server"), None)


def test_flags_that_contradict_each_other_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="--tls-client-ca needs --tls-cert"):
        resolve(ServerConfig(tls_client_ca=folder / "ca.pem"))
    first, key = folder / "server.pem", folder / "server-key.pem"
    with pytest.raises(UsageError, match="--insecure is for plain text"):
        resolve(ServerConfig(tls_cert=first, tls_key=key, insecure=True))


def test_a_server_does_not_start_with_an_expired_certificate(tmp_path: Path) -> None:
    make(tmp_path, valid=EXPIRED)
    first, key = tmp_path / "server.pem", tmp_path / "server-key.pem"
    with pytest.raises(UsageError, match=r"--tls-cert .* has expired on .*, and this machine's clock says"):
        resolve(ServerConfig(tls_cert=first, tls_key=key))


def test_the_operator_hears_of_the_end_before_and_after_it(folder: Path) -> None:
    pair = pair_of(folder, "server")
    assert not certificates.notice(pair, NOW)
    assert not certificates.notice(pair, pair.ends - timedelta(days=14))
    assert certificates.notice(pair, pair.ends - timedelta(days=13)).startswith("ends on 20")
    assert certificates.notice(pair, pair.ends + timedelta(days=1)).startswith("has expired on 20")


def test_any_file_of_tls_turns_it_on_at_a_client(folder: Path) -> None:
    config = resolve_client(ClientConfig(server="192.0.2.1:9300", tls_ca=folder / "ca.pem"))
    trust = Trust.of(config)
    assert trust == Trust(AT, True, (folder / "ca.pem").read_bytes(), None)
    assert isinstance(trust.credentials(), grpc.ChannelCredentials)
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
    words = [line.split()[0] for line in said.output.splitlines()]
    assert words == ["authority", "certificate", "certificate", "join"]
    assert read_authority(tmp_path / "ca.pem", "--tls-ca")
    assert timedelta(days=1) < pair_of(tmp_path, "client-c0").ends - NOW < timedelta(days=3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to make: give --server NAME or --client ID"),
        (["--client", "a/b"], "--client is 'a/b', allowed is a client id"),
        (["--server", "ü"], "--server is 'ü:9300', allowed is host:port"),
        (["--server", ":9300"], "--server is ':9300', allowed is a host name or an IP address"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    said = CliRunner().invoke(certs, [str(tmp_path), *arguments])
    assert isinstance(said.exception, UsageError)
    assert str(said.exception).startswith(sentence)


# ---------------------------------------------------------------------------------------------- join files


def joined(folder: Path, *arguments: str) -> str:
    said = CliRunner().invoke(certs, [str(folder), *arguments])
    assert said.exit_code == 0, said.output
    return said.output


def options_of(path: Path) -> ClientConfig:
    return ClientConfig(**from_file(ClientConfig, path))


def test_a_join_file_is_all_that_a_device_needs(tmp_path: Path) -> None:
    joined(tmp_path, "--server", "192.0.2.2:9400", "--server", "fl.example.org", "--client", "a")
    path = tmp_path / "a.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    config = resolve_client(options_of(path))
    assert (config.id, config.server, config.tls) == ("a", "192.0.2.2:9400", True)
    own = pair_of(tmp_path, "client-a")
    assert Trust.of(config) == Trust(
        Address("192.0.2.2", 9400), True, (tmp_path / "ca.pem").read_bytes(), own
    )
    assert '# or server = "fl.example.org:9300"' in path.read_text()


def test_a_later_device_gets_the_same_server(tmp_path: Path) -> None:
    joined(tmp_path, "--server", "::1")
    joined(tmp_path, "--client", "b")
    assert options_of(tmp_path / "b.toml").server == "[::1]:9300"


def test_without_a_server_the_command_says_what_is_missing(tmp_path: Path) -> None:
    assert "the join files name no server: give fl-client --server" in joined(tmp_path, "--client", "a")
    assert options_of(tmp_path / "a.toml").server == ClientConfig().server


def test_a_key_within_options_is_not_shown(tmp_path: Path) -> None:
    joined(tmp_path, "--client", "a")
    assert "PRIVATE" not in repr(options_of(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("-----END CERTIFICATE-----", "", "is 'the text in the file of options', allowed is a PEM file with"),
        ("-----BEGIN PRIVATE KEY-----", "x", "--tls-key is 'the text in the file of options', allowed is"),
        ("tls_key = ", "tls_kee = ", "unknown key in .*: tls_kee, did you mean tls_key?"),
        ("MII", "\0", "is not TOML"),
        ("MII", "MIJ", "--tls"),
    ],
)
def test_a_damaged_join_file_is_refused_with_one_sentence(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    joined(tmp_path, "--server", "localhost", "--client", "a")
    path = tmp_path / "a.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError, match=sentence):
        Trust.of(resolve_client(options_of(path)))


def test_a_client_is_called_as_its_certificate_says_unless_it_is_told(folder: Path) -> None:
    shown = ClientConfig(tls_cert=folder / "client-c0.pem", tls_key=folder / "client-c0-key.pem")
    assert resolve_client(shown).id == "c0"
    assert resolve_client(replace(shown, host_clients=2)).id == "c0"
    assert resolve_client(replace(shown, id="c0-7")).id == "c0-7"
    assert resolve_client(replace(shown, ids=("c0-1",))).id is None


def test_a_key_in_a_variable_is_refused_and_not_repeated(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from edgeflock.client.cli import main; main()"]
    environ = {**os.environ, "FL_CLIENT_TLS_KEY": "-----BEGIN PRIVATE KEY-----\nSECRET\n"}
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fl-client: error: a PEM text stands in the --config file alone")
    assert "SECRET" not in done.stderr


def test_a_key_within_options_that_is_none_is_not_repeated(tmp_path: Path) -> None:
    joined(tmp_path, "--server", "localhost", "--client", "a")
    path = tmp_path / "a.toml"
    path.write_text(
        re.sub(r"(?s)tls_key = '''.*?'''", r'tls_key = "-----BEGIN\\nSECRET\\u0000"', path.read_text())
    )
    with pytest.raises(UsageError, match="the text in the file of options") as refused:
        Trust.of(resolve_client(options_of(path)))
    assert "SECRET" not in str(refused.value)


# ----------------------------------------------------------------------------------- whose a certificate is


class Seen:
    """A call as gRPC has seen its certificate."""

    def __init__(self, common: tuple[bytes, ...], *others: bytes) -> None:
        self._seen = {"x509_common_name": common, "x509_subject_alternative_name": others}

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        return {name: found for name, found in self._seen.items() if found}


@pytest.mark.parametrize(
    ("client_id", "allowed"),
    [
        ("pi", True),
        ("pi-7", True),  # hosted there
        ("a.b", True),
        ("pi-", False),
        ("pi-7x", False),
        ("pi2", False),
        ("axb", False),
        ("xpi", False),
    ],
)
def test_a_certificate_is_for_its_names_and_for_whom_they_host(client_id: str, allowed: bool) -> None:
    context: Any = Seen((b"pi",), b"a.b")
    assert certificates.names_of(context) == ["pi", "a.b"]
    assert certificates.allow(certificates.names_of(context), client_id) == allowed
    nobody: Any = Seen(())
    assert (certificates.names_of(nobody), certificates.allow(certificates.names_of(nobody), client_id)) == (
        [],
        False,
    )


def test_an_operator_hears_once_that_a_certificate_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(folder, "server")
    monkeypatch.setattr(certificates, "_SOON", pair.ends - NOW + timedelta(days=1))
    monkeypatch.setattr(certificates, "_LOOK_EVERY_S", 0.0)
    told: list[str] = []

    async def look() -> None:
        watching = asyncio.create_task(certificates.watch(pair, told.append))
        for _ in range(9):
            await asyncio.sleep(0)
        assert not watching.done()
        watching.cancel()

    asyncio.run(look())
    assert told == [certificates.notice(pair, NOW)]


def test_what_the_log_says_of_the_transport_is_whether_clients_show_certificates(folder: Path) -> None:
    pair = pair_of(folder, "server")
    found = [certificates.Certificates(pair, given) for given in (None, (folder / "ca.pem").read_bytes())]
    assert [one.words for one in found] == ["tls", "tls, with certificates of clients"]
    assert all(isinstance(one.credentials(), grpc.ServerCredentials) for one in found)
