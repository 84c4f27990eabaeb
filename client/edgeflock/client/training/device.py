"""The device: where to compute, and what this machine is."""

from __future__ import annotations

import os
import platform

import psutil
import torch

from edgeflock.client.config import ClientConfig
from edgeflock.client.protocol import Device
from edgeflock.common.errors import BadValue


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


def describe(device: torch.device, config: ClientConfig) -> Device:
    """Return what the server is told about this machine, and what its operator said of the work on it."""
    return Device(
        machine=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        torch=str(torch.__version__),
        compute=str(device),
        python=platform.python_version(),
        asked=config.device,
        threads=config.threads,
        parallel=config.parallel,
        watts=config.watts or 0.0,
        hold_out=config.hold_out,
    )


def forget_peak(device: torch.device) -> None:
    """Begin to watch the memory in use on a GPU; whatever trains on it at the same time is in it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Return the most memory in use on a GPU since then; MPS tells only what it holds now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return torch.mps.driver_allocated_memory() if device.type == "mps" else None
