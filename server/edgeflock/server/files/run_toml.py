"""RUN_DIR/run.toml: the resolved configuration as text, under a seal: options are changed by flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edgeflock.common.command import settings_file
from edgeflock.common.command.options import read_toml
from edgeflock.common.errors import UsageError
from edgeflock.common.payload.checksum import extend
from edgeflock.common.plugins.loading import named
from edgeflock.server.config import ServerConfig, references
from edgeflock.server.files import run_dir

# Options that a method got after runs had begun without them, with the value that does what those did.
SINCE = {
    "fedadm": {"batches": "own"},
    "fedtrip": {"first": "none", "mu_per": "step", "push_limit": "0.0"},
}
# What is `clock` today, as an option of FedADM.
CLOCKS = {"real": "real", "simulated": "simulated:c=0.013,b=0.1316,draws=round"}
_AS_OLD_AS_THE_SEAL = b"\nmetrics_clients ="  # an option: a file without it may have no seal
_LAST_TABLE = b"\n[model]  # identity\nname = "


def to_toml(config: ServerConfig) -> str:
    """Return the text of RUN_DIR/run.toml; where it lies says of which directory it is, and where its copy of
    the starting weights is."""
    text = settings_file.to_toml(replace(config, run_dir=None, init=None, evaluate_only=None))
    return text + _seal(text.encode())


def from_toml(path: Path) -> ServerConfig:
    """Return the configuration in a run.toml, that of an earlier edgeflock too. Raises UsageError."""
    config = settings_file.from_toml(ServerConfig, read_toml(path), str(path))
    if not _is_whole(path.read_bytes()):
        raise UsageError(
            f"{str(path)!r} is not as fl-server wrote it: restore it, "
            "or delete it and give the run's options as flags"
        )
    for reference in references(config):
        named(reference)  # a run directory is its operator's: who reads it may need what it was made with
    kept = path.parent / run_dir.INIT
    return replace(
        config,
        run_dir=path.parent,
        init=kept if config.init_sha256 and kept.is_file() else None,
        set={**SINCE.get(config.method, {}), **_without(config.set, "clock")},
        clock=CLOCKS.get(config.set.get("clock", ""), config.clock),
    )


def _without(options: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: text for key, text in options.items() if key != name}


def _is_whole(content: bytes) -> bool:
    text = content[: -len(_seal(b""))]
    if content == text + _seal(text).encode():
        return True
    return _AS_OLD_AS_THE_SEAL not in content and _LAST_TABLE in content and content.endswith(b"\n")


def _seal(text: bytes) -> str:
    """Return the last line of a run.toml: half of it, or another number in it, would be another run."""
    return f"\n# crc32c {extend(0, text):08x} of all above: options are changed by flags, not here\n"
