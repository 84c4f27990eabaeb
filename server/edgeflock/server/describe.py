"""A method's options in words, for `fl-server --help-method` and `fl-lab methods NAME`."""

from __future__ import annotations

import dataclasses

from edgeflock.methods import load
from edgeflock.methods.base import Method


def describe_method(name: str) -> str:
    """Return meaning, paper symbol, default and range of every option. Raises UnknownName."""
    method = load(name)
    lines = [
        f"{method.name}: {method.summary}",
        "",
        "Options (--set KEY=VALUE, or the [method] table of a file):",
    ]
    for field in dataclasses.fields(method.params):
        symbol = f" (the paper's {field.metadata['symbol']})" if field.metadata["symbol"] else ""
        allowed = field.metadata["allowed"].words
        lines += [f"  {field.name}", f"      {field.metadata['meaning']}{symbol}"]
        lines.append(f"      default {field.default}, allowed is {allowed}")
    return "\n".join([*lines, *_training(method), *_demands(method)])


def _training(method: Method) -> list[str]:
    own = {name: value for name, value in dataclasses.asdict(method.training).items() if value is not None}
    if not own:
        return []
    flags = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in own.items())
    return ["", f"Own defaults of the training options: {flags}"]


def _demands(method: Method) -> list[str]:
    lines = []
    if method.full_participation:
        lines.append("Needs every client in every round.")
    if method.own_momentum:
        lines.append("Has a momentum of its own: --momentum must be 0.")
    if method.central:
        lines.append("Trains on the server; no client is contacted.")
    return ["", *lines] if lines else []
