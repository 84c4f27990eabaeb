"""What the server runs on and with: noted at every start, for whoever repeats the run."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import torch


def versions() -> dict[str, object]:
    """Return versions and kind of machine, in the words of a client's device."""
    return {
        "software": version("edgeflock"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count() or 0,
    }
