"""fl-lab completion: what a shell has to read to complete the three commands."""

from __future__ import annotations

import importlib

import click
from click.shell_completion import get_completion_class

_COMMANDS = {
    "fl-server": "edgeflock.server.cli",
    "fl-client": "edgeflock.client.cli",
    "fl-gate": "edgeflock.server.gate.cli",
    "fl-lab": "edgeflock.lab.cli",
}
_LINES = {
    "bash": 'eval "$(fl-lab completion bash)"     in ~/.bashrc',
    "zsh": 'eval "$(fl-lab completion zsh)"      in ~/.zshrc, behind compinit',
    "fish": "fl-lab completion fish > ~/.config/fish/conf.d/edgeflock.fish",
}


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]}, epilog="\b\n" + "\n".join(_LINES.values())
)
@click.argument("shell", type=click.Choice(list(_LINES)))
def completion(shell: str) -> None:
    """Print what makes SHELL complete fl-server, fl-client and fl-lab."""
    kind = get_completion_class(shell)
    assert kind is not None
    for name, place in _COMMANDS.items():
        module = importlib.import_module(place)
        command = module.group if name == "fl-lab" else module.build()
        click.echo(kind(command, {}, name, f"_{name.upper().replace('-', '_')}_COMPLETE").source())
