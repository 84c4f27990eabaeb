"""The gauge: readings of a round for every hosted client, from sensors or from stated watts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from edgeflock.client.costs import ExamCost, Readings, RoundCost, TrainCost
from edgeflock.client.training import meter as meters
from edgeflock.client.training.device import forget_peak, peak_bytes
from edgeflock.client.training.gauge import Gauge, Use
from edgeflock.client.training.meter import Activity, Meter
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
    assert pb.TrainCost(**TrainCost(readings=meter.read()).fields()).readings == pb.Readings()


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


def test_what_came_after_the_last_verdict_goes_with_the_last_round(tmp_path: Path) -> None:
    """A training in vain is paid too; of peaks the higher counts."""
    zone = tmp_path / "sys/class/thermal/thermal_zone0/temp"
    zone.parent.mkdir(parents=True)
    now = [0.0]
    meter = Meter(alone=True, clock=lambda: now[0], gauge=without_sensors(tmp_path, watts=2.0))
    halves = []
    for celsius, walk in (
        (40, [(Activity.TRAIN, 4.0), (Activity.WAIT, 1.0)]),
        (60, [(Activity.FETCH, 1.0), (Activity.TRAIN, 2.0), (Activity.WAIT, 6.0)]),
    ):
        for activity, seconds in walk:
            meter.enter(activity)
            now[0] += seconds
        meter.probe.note(celsius, celsius > 50)
        halves.append(meter.finish(7))
    whole = halves[0].with_rest(halves[1])
    assert (whole.round, whole.fetch_s, whole.train_s, whole.deliver_s, whole.wait_s) == (
        7,
        1.0,
        6.0,
        0.0,
        7.0,
    )
    assert whole.readings == Readings(None, 60, True, 2.0 * 7, SOURCES.index(MODEL) + 1)
    assert halves[1].with_rest(halves[0]).readings == whole.readings


def test_the_most_memory_of_a_gpu_in_the_round_is_told(tmp_path: Path) -> None:
    meter = Meter(alone=True, gauge=without_sensors(tmp_path))
    for peak in (None, 700, 500):
        meter.probe.note_gpu(peak)
    told = pb.TrainCost(**TrainCost(readings=meter.read()).fields()).readings
    assert (told.peak_gpu_bytes, told.HasField("temperature_c")) == (700, False)
    meter.finish(1)
    assert meter.read() == Readings()


@pytest.mark.parametrize(
    ("name", "fewest"),
    [
        ("cpu", None),
        pytest.param(
            "cuda",
            1 << 22,
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
        ),
    ],
)
def test_only_a_gpu_tells_its_memory(name: str, fewest: int | None) -> None:
    device = torch.device(name)
    forget_peak(device)
    torch.empty(1 << 20, device=device)
    peak = peak_bytes(device)
    assert peak is None if fewest is None else peak is not None and peak >= fewest


def test_a_sensor_goes_before_stated_watts(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0")
    (zone / "energy_uj").write_text("0")
    gauge = Gauge(Sensors(tmp_path), watts=5.0)
    assert gauge.source == "rapl"
    probe = gauge.probe()
    (zone / "energy_uj").write_text("3000000")
    read = probe.read(Use(1e9, 100.0), None)
    assert read.energy_j == pytest.approx(3.0)
    assert SOURCES[read.energy_source - 1] == "rapl"


def test_the_numbers_of_the_sources_are_those_of_the_wire() -> None:
    names = [name.removeprefix("ENERGY_SOURCE_").lower() for name in pb.EnergySource.keys()[1:]]
    assert tuple(names) == SOURCES


def test_costs_come_back_from_the_outbox_and_from_one_of_an_earlier_version() -> None:
    cost = TrainCost(train_s=2.0, readings=Readings(temperature_c=50.0))
    assert cost.fields() == asdict(cost)
    assert TrainCost.of(cost.fields()) == cost
    assert TrainCost.of({"train_s": 2.0}) == TrainCost(train_s=2.0)


def test_a_test_of_the_client_s_own_model_is_no_cost_of_its_round(tmp_path: Path) -> None:
    now = [0.0]
    meter = Meter(alone=False, clock=lambda: now[0], gauge=without_sensors(tmp_path, watts=5.0))
    meter.enter(Activity.TRAIN)
    now[0] = 10.0
    meter.examined(ExamCost(4.0, 3.0))
    meter.worked(8.0)
    assert meter.spent(0.0) == {"cpu": 5.0, "energy": 5.0 * 6.0}
    cost = meter.finish(1)
    assert (cost.train_s, cost.cpu_s, cost.readings.energy_j) == (6.0, 5.0, 30.0)
    assert (cost.exam_s, cost.exam_cpu_s, cost.readings.exam_j) == (4.0, 3.0, 20.0)
    assert meter.finish(2) == RoundCost(
        2, 0, 0, 0, 0, 0, cost.peak_rss_bytes, Readings(None, None, None, 0.0, 3)
    )


def test_who_is_alone_is_charged_what_the_process_has_used_since_its_last_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = [100.0]
    clock = SimpleNamespace(process_time=lambda: cpu[0])
    monkeypatch.setattr(meters, "time", clock)
    alone, one = (Meter(alone=single, clock=lambda: 0.0) for single in (True, False))
    cpu[0] = 107.0
    for meter in (alone, one):
        meter.examined(ExamCost(1.0, 2.0))
        meter.worked(3.0)
    assert (alone.cpu_s(0.5), one.cpu_s(0.5)) == (5.0, 1.5)
    assert [meter.finish(1).cpu_s for meter in (alone, one)] == [5.0, 1.0]
    cpu[0] = 111.0
    assert [meter.finish(2).cpu_s for meter in (alone, one)] == [4.0, 0.0]


def test_a_test_takes_no_more_than_there_was(tmp_path: Path) -> None:
    meter = Meter(alone=False, clock=lambda: 0.0, gauge=without_sensors(tmp_path))
    meter.examined(ExamCost(0.0, 9.0))  # no test
    meter.worked(3.0)
    assert meter.cpu_s(0.0) == 3.0
    meter.examined(ExamCost(1.0, 9.0))
    assert meter.cpu_s(0.0) == 0.0


def test_what_a_process_before_has_stated_of_an_update_is_in_its_round(tmp_path: Path) -> None:
    """Killed between training and verdict: the report of the whole round is no less than the header was."""
    now = [0.0]
    stated = TrainCost(
        train_s=40.0, cpu_s=30.0, fetch_s=2.0, samples_done=500, forward_samples=500, backward_samples=500,
        exam_s=3.0, readings=Readings(energy_j=200.0, energy_source=3),
    )  # fmt: skip
    meter = Meter(alone=False, clock=lambda: now[0], gauge=without_sensors(tmp_path, watts=5.0))
    meter.resume(stated, 4000)
    meter.enter(Activity.DELIVER)
    now[0] = 2.0
    assert meter.spent(0.5) == {"cpu": 30.5, "energy": 210.0}
    cost = meter.finish(1)
    assert (cost.train_s, cost.cpu_s, cost.fetch_s, cost.deliver_s, cost.exam_s) == (
        40.0,
        30.0,
        2.0,
        2.0,
        3.0,
    )
    assert (cost.steps, cost.samples_done, cost.forward_samples) == (4000, 500, 500)
    assert cost.readings.energy_j == 210.0
    assert meter.finish(2).train_s == 0.0
