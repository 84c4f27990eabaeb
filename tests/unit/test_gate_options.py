"""Options of gates, and of a server that takes them: what cannot be is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeflock.common.errors import UsageError
from edgeflock.server.config import ServerConfig
from edgeflock.server.gate import daemon
from edgeflock.server.gate.config import GateConfig
from edgeflock.server.start.resolve import resolve

KEY = Path("key")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    KEY.write_text("a key\n", "utf-8")
    Path("empty").touch()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (GateConfig(), "--key has to name the file of fl-server's --gate-key"),
        (GateConfig(key=Path("empty")), "--key 'empty' is empty"),
        (GateConfig(key=Path("missing")), "--key 'missing' cannot be read"),
        (GateConfig(key=KEY, coordinator="nowhere"), "--coordinator is 'nowhere'"),
        (GateConfig(key=KEY, coordinator="example.org:1"), "--coordinator example.org:1 reaches beyond"),
        (GateConfig(key=KEY, listen=":99999"), "--listen is ':99999'"),
        (GateConfig(key=KEY, listen="0.0.0.0:0"), "--listen 0.0.0.0:0 reaches beyond this machine"),
        (GateConfig(key=KEY, tls_cert=Path("cert.pem")), "--tls-cert and --tls-key go together"),
        (GateConfig(key=KEY, spool_dir=Path("key/spool")), "--spool-dir"),
        (GateConfig(key=KEY, advertise="here"), "--advertise is 'here'"),
    ],
)
def test_a_gate_that_cannot_be_one_says_so_in_a_sentence(config: GateConfig, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        daemon.run(config)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ServerConfig(gates=-1), "--gates is -1"),
        (ServerConfig(gates=2, budget={"bytes": "1MB"}), "--gates does not go with --budget bytes"),
        (ServerConfig(gates=2, method="centralized"), "--gates has no use: centralized trains on the server"),
        (ServerConfig(gates=2, listen="unix:s"), "--gates needs a --listen that others can be found beside"),
        (ServerConfig(gate_listen="0.0.0.0:1"), "--gate-listen 0.0.0.0:1 reaches beyond this machine"),
        (ServerConfig(gate_listen="here"), "--gate-listen is 'here'"),
        (ServerConfig(gate_key=KEY), "--gate-key has no use without --gates or --gate-listen"),
        (ServerConfig(gates=1, gate_key=Path("missing")), "--gate-key 'missing' cannot be read"),
        (ServerConfig(gates=1, gate_key=Path("empty")), "--gate-key 'empty' is empty"),
    ],
)
def test_options_of_gates_that_cannot_be_are_refused_in_a_sentence(config: ServerConfig, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(config)
    assert words in str(refused.value)
