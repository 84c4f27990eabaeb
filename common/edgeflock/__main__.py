"""python -m edgeflock: the three commands where their scripts are not on the PATH."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys

from edgeflock.common.command import streams

_COMMANDS = {
    "server": "serve one run to its end",
    "client": "take part in a run, on a device",
    "lab": "experiments on one machine, reports, certificates",
}


def main() -> None:
    """Become `fl-server`, `fl-client` or `fl-lab`, as the first argument says."""
    streams.secure()
    name = sys.argv[1].removeprefix("fl-") if len(sys.argv) > 1 else ""
    if name in _COMMANDS:
        sys.argv[:2] = [f"fl-{name}"]
        importlib.import_module(f"edgeflock.{name}.cli").main()
    if name == "--version":
        sys.stdout.write(f"edgeflock {importlib.metadata.version('edgeflock')}\n")
        return
    asked = name in ("", "-h", "--help")
    if not asked:
        sys.stderr.write(f"edgeflock: error: unknown command: {name}, known are {', '.join(_COMMANDS)}\n")
        sys.exit(2)
    lines = (f"  python -m edgeflock {name:6}  as fl-{name:6}  {words}" for name, words in _COMMANDS.items())
    sys.stdout.write("\n".join(["Usage: python -m edgeflock COMMAND [OPTIONS]", "", *lines, ""]))


if __name__ == "__main__":
    main()
