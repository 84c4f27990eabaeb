"""A house of devices: the network laid, the devices up in it, each held to its share of CPU."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.common.errors import EdgeflockError
from edgeflock.lab.becoming import program
from edgeflock.lab.children import Child, Children, environment_without
from edgeflock.lab.testbed import gauges, laying, quota
from edgeflock.lab.testbed.gauges import CpuBook, Sent
from edgeflock.lab.testbed.owner import Mark
from edgeflock.lab.testbed.plan import TestbedPlan
from edgeflock.server.config import references

SERVER_ADDRESS, PORT = "10.213.0.1", 9300
_UP = '"event": "client_started"'
_UP_S = 300.0  # for all devices to be up
_POLL_S = 0.05
_CONTROL_GROUPS = "[devices] cpu = 'quota': this machine offers no control groups of CPU ('pace' needs none)"


class HouseBroken(EdgeflockError):
    """The devices, or what is between them, cannot be had any more."""


@dataclass
class House:
    """The devices of one testbed; whatever it makes has the mark."""

    plan: TestbedPlan
    out: Path
    mark: Mark
    children: Children
    devices: list[Child] = field(default_factory=list)
    groups: quota.Groups | None = None
    mode: str = "free"  # how devices are held to their share

    def open(self) -> None:
        """Lay the network and bring up the devices."""
        for name in (self.server, *self.homes):
            laying.make(name)
        self._start_relay()
        for name, address in self._ends():
            laying.address(name, address)
        self._choose_mode()
        for number in range(self.plan.clients):
            self._start_device(number)
        self._wait_for_devices()
        self._hold()

    def close(self) -> None:
        """Let the devices go at full speed: they have to write down what they hold."""
        if self.groups is not None:
            for number in range(len(self.devices)):
                self.groups.lift(f"d{number}")

    def check(self) -> None:
        """Raise HouseBroken if something of the house has ended."""
        for child in self.children.all:
            if child.code is not None and child.name != "fl-server":
                raise HouseBroken(child.ending())

    def told(self) -> str:
        """Return in a sentence how devices are held to their share."""
        words = {
            "quota": "by a control group of its own",
            "pace": "by stopping it now and then (no control groups here)",
            "free": "by nothing: each takes what it gets",
        }
        return f"{len(self.devices)} devices are up, each held to its share {words[self.mode]}"

    # ------------------------------------------------------------------------------------- the network

    @property
    def server(self) -> str:
        """The namespace of the server."""
        return self.mark.named("server")

    @property
    def homes(self) -> list[str]:
        """The namespaces of the devices."""
        return [self.mark.named(f"d{number}") for number in range(self.plan.clients)]

    @property
    def figures(self) -> Path:
        """Where the relay tells what has passed."""
        return self.mark.folder / "figures.json"

    def _ends(self) -> list[tuple[str, str]]:
        return [
            (self.server, SERVER_ADDRESS),
            *((name, f"10.213.1.{n + 1}") for n, name in enumerate(self.homes)),
        ]

    def _start_relay(self) -> None:
        terms = {
            "ends": self._ends(),
            "air": vars(self.plan.medium.link),
            "cable": vars(self.plan.cable.link),
            "shared": self.plan.medium.shared,
            "figures": str(self.figures),
        }
        path = self.mark.folder / "terms.json"
        path.write_text(json.dumps(terms), "utf-8")
        relay = self._start("the medium", "relay", str(path))
        while not self.figures.exists():
            if relay.code is not None:
                raise HouseBroken(relay.ending())
            time.sleep(_POLL_S)

    def _start(self, name: str, module: str, *arguments: str) -> Child:
        """Start a process of the testbed's own."""
        words = [sys.executable, "-m", f"edgeflock.lab.testbed.{module}", *arguments]
        log = self.out / "logs" / f"{module}.log"
        child = self.children.start(name, words, log, environment_without("FL_"))
        self.mark.own(child.process.pid)
        return child

    # ------------------------------------------------------------------------------------- the devices

    def _choose_mode(self) -> None:
        """Find out how devices can be held to their share here."""
        asked = self.plan.devices.cpu
        if asked in ("auto", "quota"):
            self.groups = quota.groups(self.mark.name)
        if asked == "quota" and self.groups is None:
            raise HouseBroken(_CONTROL_GROUPS)
        self.mode = asked if asked != "auto" else "quota" if self.groups else "pace"

    def _start_device(self, number: int) -> None:
        name, home = f"c{number}", self.homes[number]
        root = self.plan.grid.cells[0].config.data_root
        code = dict.fromkeys(name for cell in self.plan.grid.cells for name in references(cell.config))
        words = [
            *laying.inside(home),
            *program("fl-client"),
            "--stay",
            "--insecure",
            f"--server={SERVER_ADDRESS}:{PORT}",
            f"--id={name}",
            f"--watts={self.plan.devices.watts}",
            "--threads=1",
            "--device=cpu",
            f"--state-dir={self.out / 'devices' / name}",
            "--log-format=json",
            *([f"--data-root={root}"] if root else []),
            *([f"--allow-code={','.join(code)}"] if code else []),
        ]
        log = self.out / "logs" / f"device-{name}.jsonl"
        child = self.children.start(f"device {name}", words, log, environment_without("FL_"))
        self.mark.own(child.process.pid)
        self.devices.append(child)
        if self.groups is not None:
            self.groups.make(f"d{number}")
            self.groups.take(f"d{number}", child.process.pid)

    def _wait_for_devices(self) -> None:
        until = time.monotonic() + _UP_S
        while not all(_UP in device.said() for device in self.devices):
            self.check()
            if time.monotonic() > until:
                raise HouseBroken(f"the devices are not up after {_UP_S:.0f} s: this machine is too slow")
            time.sleep(_POLL_S)

    def _hold(self) -> None:
        """Give every device its share from now on: to import torch with it would take half a minute."""
        terms = self.plan.devices
        if self.mode == "quota" and self.groups is not None:
            for number in range(len(self.devices)):
                self.groups.limit(f"d{number}", terms.quota, terms.period)
        elif self.mode == "pace":
            self._start("the pacer", "pacer", str(terms.share), *map(str, self._processes()))

    def _processes(self) -> list[int]:
        return [device.process.pid for device in self.devices]

    # ------------------------------------------------------------------------------------- what is read

    def cpu_book(self) -> CpuBook:
        return CpuBook(self._processes())

    def interfaces(self) -> tuple[Sent, Sent]:
        """Return what the server and what all devices have sent."""
        return gauges.sent([self.server]), gauges.sent(self.homes)

    def medium(self) -> dict[str, float]:
        return gauges.medium_now(self.figures)
