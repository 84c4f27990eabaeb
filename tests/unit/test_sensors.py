"""Sensors are read from files as Linux shows them; what is not there, or is nonsense, is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeflock.common.energy import Share, busy_cpu_s
from edgeflock.common.sensors import Sensors


class Machine:
    """A machine's /sys, written by hand, and its clock."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 100.0

    def write(self, name: str, text: object) -> None:
        path = self.root / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def sensors(self) -> Sensors:
        return Sensors(self.root, clock=lambda: self.now)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_sensors_tells_nothing(machine: Machine) -> None:
    sensors = machine.sensors()
    assert (sensors.temperature_c(), sensors.throttled(), sensors.source) == (None, None, "")
    assert (sensors.joules(), sensors.any) == (0.0, False)


def test_the_hottest_zone_counts_and_impossible_ones_do_not(machine: Machine) -> None:
    for zone, milli in enumerate((41_500, 67_250, -274_000, "broken")):
        machine.write(f"class/thermal/thermal_zone{zone}/temp", milli)
    assert machine.sensors().temperature_c() == 67.25


@pytest.mark.parametrize(
    ("flags", "throttled"),
    [("0", False), ("0x50000", False), ("50005", True), ("4", True), ("8", True), ("no", None)],
)
def test_a_raspberry_pi_says_whether_it_is_throttled_now(
    machine: Machine, flags: str, throttled: bool | None
) -> None:
    """Bits 16 to 19 say that it was since it started, which is no word on this round."""
    machine.write("devices/platform/soc/soc:firmware/get_throttled", flags)
    assert machine.sensors().throttled() is throttled


def test_a_lowered_clock_of_any_board_is_throttling(machine: Machine) -> None:
    machine.write("class/thermal/cooling_device0/type", "pwm-fan")
    machine.write("class/thermal/cooling_device0/cur_state", 3)
    assert machine.sensors().throttled() is None
    machine.write("class/thermal/cooling_device1/type", "cpufreq-cpu0")
    machine.write("class/thermal/cooling_device1/cur_state", 0)
    sensors = machine.sensors()
    assert sensors.throttled() is False
    machine.write("class/thermal/cooling_device1/cur_state", 2)
    assert sensors.throttled() is True


def test_rapl_counts_packages_and_memory_over_their_wrap(machine: Machine) -> None:
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "psys",
    }
    for zone, name in zones.items():
        machine.write(f"class/powercap/{zone}/name", name)
        machine.write(f"class/powercap/{zone}/energy_uj", 9_000_000)
        machine.write(f"class/powercap/{zone}/max_energy_range_uj", 10_000_000)
    sensors = machine.sensors()
    assert (sensors.source, sensors.polled) == ("rapl", False)
    machine.write("class/powercap/intel-rapl:0/energy_uj", 500_000)  # wrapped: 1.5 J
    machine.write("class/powercap/intel-rapl:0:1/energy_uj", 9_250_000)
    assert sensors.joules() == pytest.approx(1.75)
    assert sensors.joules() == pytest.approx(1.75)


def test_a_counter_that_only_root_may_read_is_no_sensor(machine: Machine) -> None:
    machine.write("class/powercap/intel-rapl:0/name", "package-0")
    machine.write("class/powercap/intel-rapl:0/energy_uj", "")
    assert machine.sensors().source == ""


@pytest.mark.parametrize(
    "files",
    [
        {"name": "ina226", "power1_input": 4_000_000},
        {"name": "ina3221", "in1_label": "VDD_IN", "in1_input": 5000, "curr1_input": 800, "in2_input": 5000,
         "curr2_input": 300, "in2_label": "VDD_CPU"},
    ],
)  # fmt: skip
def test_power_becomes_energy_between_two_looks(machine: Machine, files: dict[str, object]) -> None:
    for name, text in files.items():
        machine.write(f"class/hwmon/hwmon0/{name}", text)
    sensors = machine.sensors()
    assert (sensors.source, sensors.polled) == ("hwmon", True)
    machine.now += 2.5
    assert sensors.joules() == pytest.approx(4.0 * 2.5)


def test_a_fan_is_no_power_sensor(machine: Machine) -> None:
    machine.write("class/hwmon/hwmon0/name", "nvme")
    machine.write("class/hwmon/hwmon0/power1_input", 1)
    assert machine.sensors().source == ""


def test_a_process_is_charged_its_share_of_the_cpu_time_in_use(machine: Machine) -> None:
    machine.write("class/powercap/intel-rapl:0/name", "package-0")
    machine.write("class/powercap/intel-rapl:0/energy_uj", 0)
    share = Share(machine.sensors())
    before = busy_cpu_s()
    machine.write("class/powercap/intel-rapl:0/energy_uj", 6_000_000)
    most = share.used(1e9)  # more than the whole machine has used: all of it
    assert most == pytest.approx(6.0)
    assert share.used(0.0) == 0.0
    assert busy_cpu_s() >= before
    assert share.take(1e9) == pytest.approx(6.0)
    assert share.used(1e9) == 0.0
    assert Share(Sensors(machine.root / "nowhere")).take(1.0) is None
