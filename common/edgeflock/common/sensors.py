"""Sensors of this machine that Linux shows as files: temperature, throttling, power; None without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

RAPL, HWMON, MODEL = "rapl", "hwmon", "model"  # where a number of joules comes from
SOURCES = (RAPL, HWMON, MODEL)

_THROTTLED = (  # of a Raspberry Pi: what `vcgencmd get_throttled` says
    "sys/devices/platform/soc/soc:firmware/get_throttled",
    "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled",
    "sys/class/hwmon/firmware/get_throttled",
)
_NOW = 0xF  # its bits for this moment: voltage too low, clock capped, throttled, near the limit of heat
_COOLERS = (
    "cpufreq",
    "Processor",
    "thermal-cpufreq",
    "thermal-devfreq",
)  # devices that cool by a lower clock
_BOARDS = ("ina", "amd_energy", "scmi")  # hwmon drivers that measure a board or a whole processor
_WRAP_J = 2.0**32 / 1e6  # where a counter starts again that does not say it


@dataclass
class _JouleCounter:
    """Joules that a file counts in microjoules, from 0 again after some highest number."""

    path: Path
    highest_j: float
    last_j: float | None = None

    def grown(self) -> float:
        """Return what came since the last look."""
        now = _number(self.path, 1e-6)
        before, self.last_j = self.last_j, now if now is not None else self.last_j
        if now is None or before is None:
            return 0.0
        return now - before if now >= before else max(0.0, now + self.highest_j - before)


@dataclass
class _Power:
    """Watts that a file tells as of now; joules are the trapezia between two looks."""

    read: Callable[[], float | None]
    clock: Callable[[], float]
    last: tuple[float, float] | None = None

    def grown(self) -> float:
        watts, now = self.read(), self.clock()
        before = self.last
        if watts is None:
            return 0.0
        self.last = (now, watts)
        return 0.0 if before is None else (now - before[0]) * (watts + before[1]) / 2


@dataclass
class Sensors:
    """What there is, looked for once."""

    root: Path = Path("/")
    clock: Callable[[], float] = time.monotonic
    source: str = ""  # of the joules; empty: there is no sensor for them
    polled: bool = False  # joules are right only if `joules` is called every second or so
    _meters: list[_JouleCounter | _Power] = field(default_factory=list)
    _joules: float = 0.0
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._zones = sorted(self.root.glob("sys/class/thermal/thermal_zone*/temp"))
        self._coolers = [path.parent / "cur_state" for path in self._cooling()]
        self._flags = [path for name in _THROTTLED if (path := self.root / name).is_file()]
        counters = [*self._rapl()]
        self._meters = [*counters] or [*self._boards()]
        if self._meters:
            self.source = RAPL if counters else HWMON
            self.polled = any(isinstance(meter, _Power) for meter in self._meters)
            self.joules()

    @property
    def any(self) -> bool:
        """Whether it is worth looking now and then."""
        return bool(self._zones or self._coolers or self._flags or self._meters)

    def temperature_c(self) -> float | None:
        """Return the hottest zone's temperature."""
        if not self._zones:
            return None
        found = [celsius for path in self._zones if (celsius := _number(path, 1e-3)) is not None]
        return max((celsius for celsius in found if -100 < celsius < 250), default=None)

    def throttled(self) -> bool | None:
        """Return whether the clock is held down at this moment."""
        if not self._flags and not self._coolers:
            return None
        told = [flags & _NOW for path in self._flags if (flags := _flags(path)) is not None]
        told += [int(state) for path in self._coolers if (state := _number(path, 1)) is not None]
        return any(told) if told else None

    def joules(self) -> float:
        """Return what the machine has used since this was made; 0 without a sensor."""
        with self._counting:  # threads ask too
            self._joules += sum(meter.grown() for meter in self._meters)
            return self._joules

    def _cooling(self) -> list[Path]:
        types = sorted(self.root.glob("sys/class/thermal/cooling_device*/type"))
        return [path for path in types if _text(path).startswith(_COOLERS)]

    def _rapl(self) -> list[_JouleCounter]:
        """Packages and their memory; the other zones are parts of these, or hold them."""
        found = []
        for path in sorted(self.root.glob("sys/class/powercap/intel-rapl:*/energy_uj")):
            wanted = _text(path.parent / "name").startswith(("package", "dram"))
            if wanted and _number(path, 1) is not None:  # most systems let only root read it
                highest = _number(path.parent / "max_energy_range_uj", 1e-6)
                found.append(_JouleCounter(path, highest or _WRAP_J))
        return found

    def _boards(self) -> list[_JouleCounter | _Power]:
        found: list[_JouleCounter | _Power] = []
        for folder in sorted(self.root.glob("sys/class/hwmon/hwmon*")):
            if _text(folder / "name").startswith(_BOARDS):
                found += self._board(folder)
        return found

    def _board(self, folder: Path) -> list[_JouleCounter | _Power]:
        """Energy if the chip counts it, else power, else current times voltage."""
        if counters := _readable(folder, "energy*_input"):
            return [_JouleCounter(path, _WRAP_J) for path in counters]
        if powers := _readable(folder, "power*_input"):
            return [_Power(partial(_number, path, 1e-6), self.clock) for path in powers]
        currents = _readable(folder, "curr*_input")
        inlet = [path for path in currents if _text(_label(path)) in ("VDD_IN", "POM_5V_IN")]
        return [_Power(partial(_watts, path), self.clock) for path in inlet or currents]


def _readable(folder: Path, pattern: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if _number(path, 1) is not None]


def _label(current: Path) -> Path:
    return current.with_name(current.name.replace("curr", "in").replace("_input", "_label"))


def _watts(current: Path) -> float | None:
    amperes = _number(current, 1e-3)
    volts = _number(current.with_name(current.name.replace("curr", "in")), 1e-3)
    return None if amperes is None or volts is None else amperes * volts


def _number(path: Path, unit: float) -> float | None:
    try:
        return int(path.read_text("ascii")) * unit
    except (OSError, ValueError):
        return None


def _flags(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii").strip().removeprefix("0x"), 16)
    except (OSError, ValueError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""
