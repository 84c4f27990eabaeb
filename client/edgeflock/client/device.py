"""The device: where to compute, and what this machine is."""

from __future__ import annotations

import os
import platform

import psutil
import torch

from edgeflock.common.errors import BadValue
from edgeflock.v1 import aggregator_pb2 as pb


def choose(name: str) -> torch.device:
    """Return the device of that name; `auto` is the best there is. Raises BadValue if it is not there."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    there = ["auto", "cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    there += (["cuda"] if cuda else []) + (["mps"] if mps else [])
    if name not in there:
        raise BadValue("--device", name, f"on this machine {', '.join(sorted(there))}")
    return torch.device(name)


def describe(device: torch.device) -> pb.Device:
    """Return what the server is told about this machine."""
    return pb.Device(
        machine=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        torch=str(torch.__version__),
        compute=str(device),
    )
