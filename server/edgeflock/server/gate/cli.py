"""fl-gate: the command that takes clients' calls and bytes for a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from edgeflock.common.command import log
from edgeflock.common.command.entry import run_command
from edgeflock.common.command.flags import Guide, command
from edgeflock.common.command.options import check
from edgeflock.server.gate.config import GateConfig

_HELP = """Take clients' calls and bytes for an fl-server, which decides.

Started on any machine that reaches the fl-server and that clients reach; it keeps nothing that
matters and may be killed at any time. fl-server --gates N starts N of them itself.
"""
_GUIDE = Guide(
    examples=(
        (
            "beside fl-server --gate-listen :9299 --gate-key key, on another machine",
            "fl-gate --coordinator host:9299 --coordinator-ca certs/ca.pem --key key \\\n"
            "          --listen :9301 --tls-cert certs/server.pem --tls-key certs/server-key.pem",
        ),
        ("a second one on this machine", "fl-gate --coordinator 127.0.0.1:9299 --key key --listen :9302"),
    ),
    first=("coordinator", "key", "listen", "advertise"),
)


def _run(given: Mapping[str, Any], attached: bool) -> int:
    config = GateConfig(**given)
    check(config)
    log.configure(config.log_level, config.log_format)
    from edgeflock.server.gate.daemon import run

    return run(config, attached=attached)


def build() -> click.Command:
    """Return the click command."""
    attached = click.Option(["--attached"], is_flag=True, hidden=True)  # said by fl-server alone
    return command("fl-gate", _HELP, {GateConfig: "FL_GATE"}, _run, _GUIDE, (attached,))


def main() -> None:
    """Run `fl-gate` and exit."""
    run_command(build(), "fl-gate")


if __name__ == "__main__":
    main()
