"""The gauge: readings of a round for every hosted client, from sensors or from stated watts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from edgeflock.client.gauge import Gauge, Readings
from edgeflock.client.meter import Activity, Meter, TrainCost
from edgeflock.common.sensors import MODEL, SOURCES, Sensors
from edgeflock.v1 import aggregator_pb2 as pb


def without_sensors(tmp_path: Path, **model: float | int) -> Gauge:
    return Gauge(Sensors(tmp_path), **model)  # type: ignore[arg-type]


def test_stated_watts_count_work_and_not_waiting(tmp_path: Path) -> None:
    now = [0.0]
    meter = Meter(alone=True, clock=lambda: now[0], gauge=without_sensors(tmp_path, watts=6.0, slots=2))
    walk = [(Activity.WAIT, 50.0), (Activity.FETCH, 1.0), (Activity.TRAIN, 4.0), (Activity.DELIVER, 2.0)]
    for activity, seconds in [*walk, (Activity.WAIT, 50.0)]:
        meter.enter(activity)
        now[0] += seconds
    cost = meter.finish(1)
    assert cost.readings == Readings(energy_j=3.0 * 7, energy_source=SOURCES.index(MODEL) + 1)
    assert cost.fetch_s + cost.train_s + cost.deliver_s + cost.wait_s == now[0]
    assert meter.finish(2).readings.energy_j == 0


def test_the_share_used_so_far_is_known_while_it_trains(tmp_path: Path) -> None:
    now = [0.0]
    meter = Meter(alone=False, clock=lambda: now[0], gauge=without_sensors(tmp_path, watts=5.0))
    meter.enter(Activity.TRAIN)
    now[0] = 3.0
    assert meter.spent(0.5) == {"cpu": 0.5, "energy": 15.0}


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    meter = Meter(alone=True, gauge=without_sensors(tmp_path))
    assert meter.read() == Readings()
    assert pb.TrainCost(**asdict(TrainCost(readings=meter.read()))).readings == pb.Readings()


def test_the_highest_temperature_of_the_round_is_told_to_every_client(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0/temp"
    zone.parent.mkdir(parents=True)
    zone.write_text("80000")
    gauge = Gauge(Sensors(tmp_path))
    meters = [Meter(alone=False, gauge=gauge) for _ in range(2)]
    gauge.look()
    zone.write_text("45000")
    assert [meter.read().temperature_c for meter in meters] == [80.0, 80.0]
    meters[0].finish(1)
    assert [meter.read().temperature_c for meter in meters] == [45.0, 80.0]


def test_a_sensor_goes_before_stated_watts(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0")
    (zone / "energy_uj").write_text("0")
    gauge = Gauge(Sensors(tmp_path), watts=5.0)
    assert gauge.source == "rapl"
    probe = gauge.probe()
    (zone / "energy_uj").write_text("3000000")
    read = probe.read(cpu_s=1e9, active_s=100.0)
    assert read.energy_j == pytest.approx(3.0)
    assert SOURCES[read.energy_source - 1] == "rapl"


def test_the_numbers_of_the_sources_are_those_of_the_wire() -> None:
    names = [name.removeprefix("ENERGY_SOURCE_").lower() for name in pb.EnergySource.keys()[1:]]
    assert tuple(names) == SOURCES


def test_costs_come_back_from_the_outbox_and_from_one_of_an_earlier_version() -> None:
    cost = TrainCost(train_s=2.0, readings=Readings(temperature_c=50.0))
    assert TrainCost.of(asdict(cost)) == cost
    assert TrainCost.of({"train_s": 2.0}) == TrainCost(train_s=2.0)
