"""What run.toml says of a run that is shown: its name in a few words, its goal, and how devices come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.wire.address import parse_address
from edgeflock.server.config import ServerConfig, references
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.files.run_toml import from_toml

_THIS_MACHINE = "ADDRESS-OF-THIS-MACHINE"


@dataclass(frozen=True)
class About:
    """What does not change while a run is shown; of one that is not known, nothing."""

    method: str = ""
    data: str = ""
    model: str = ""
    clients: int = 0
    eval_every: int = 1
    target: Mapping[str, str] = field(default_factory=dict)  # what ends the run, as it was asked for
    join_file: bool = False  # that of a device holds the address and all that makes for trust
    flags: str = ""  # that every device gives beside

    def command(self, address: str, machine: str = _THIS_MACHINE, program: str = "fl-client") -> str:
        """Return what to type on a device, once it is known where the server listens."""
        if not address:
            return ""
        if self.join_file:
            return f"{program} --config DEVICE.toml{self.flags}"
        listening = parse_address(address, rundir.ADDRESS)
        dialled = listening.with_host(machine) if listening.everywhere else listening
        return f"{program} --server {dialled.target}{self.flags}"


def read(run_dir: Path) -> About:
    """Return what run.toml says; nothing if it is not there, or being written anew."""
    try:
        return of(from_toml(run_dir / rundir.RUN_TOML))
    except (EdgeflockError, OSError):
        return About()


def of(config: ServerConfig) -> About:
    """Return what a configuration says."""
    return About(
        method=config.method,
        data=f"{config.dataset}, {config.partition}" if config.dataset else "the clients' own data",
        model=config.model,
        clients=config.clients,
        eval_every=config.eval_every,
        target=config.target,
        join_file=config.tls_client_ca is not None,
        flags="".join(f" {flag}" for flag in _flags(config)),
    )


def _flags(config: ServerConfig) -> list[str]:
    said = []
    if config.tls_cert is not None and config.tls_client_ca is None:
        said.append("--tls-ca ca.pem")
    if config.insecure:
        said.append("--insecure")
    if config.dataset is None:
        said.append("--data FILE.npz")
    if ":" in config.model:
        said.append(f"--model {config.model}")
    if code := references(config):
        said.append(f"--allow-code {','.join(code)}")
    return said
