"""What a client states of its costs is taken if it can be, and is no danger if it cannot."""

from __future__ import annotations

import math

import pytest

from edgeflock.server.service.stated import LONGEST_S, MOST, of_device, of_progress, of_round, of_training
from edgeflock.v1 import aggregator_pb2 as pb

READINGS = pb.Readings(
    peak_gpu_bytes=7,
    temperature_c=61.5,
    throttled=True,
    energy_j=12.5,
    energy_source=pb.ENERGY_SOURCE_HWMON,
)


def test_what_can_be_is_taken() -> None:
    training = pb.TrainCost(
        train_s=2.0, cpu_s=1.5, fetch_s=0.5, peak_rss_bytes=9, samples_done=40, readings=READINGS
    )
    sensors = {
        "peak_gpu_bytes": 7,
        "temperature_c": 61.5,
        "throttled": 1,
        "energy_j": 12.5,
        "energy_source": 2,
    }
    known = {"train_s": 2.0, "cpu_s": 1.5, "fetch_s": 0.5, "peak_rss_bytes": 9}
    exam = {"exam_s": 0.0, "exam_cpu_s": 0.0}
    passes = {"forward_samples": 0, "backward_samples": 0}
    assert of_training(training) == {**known, **exam, **passes, "samples_done": 40, **sensors}
    report = pb.RoundCost(
        round=1, train_s=2.0, cpu_s=1.5, fetch_s=0.5, deliver_s=0.25, wait_s=8.0, peak_rss_bytes=9,
        readings=READINGS,
    )  # fmt: skip
    done = {"steps": 0, "samples_done": 0, **passes}
    assert of_round(report) == {**known, **exam, **done, "deliver_s": 0.25, "wait_s": 8.0, **sensors}


def test_a_device_without_sensors_leaves_the_columns_alone() -> None:
    assert set(of_training(pb.TrainCost())) == {
        "train_s",
        "fetch_s",
        "cpu_s",
        "peak_rss_bytes",
        "samples_done",
        "forward_samples",
        "backward_samples",
        "exam_s",
        "exam_cpu_s",
    }


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1.0, 2 * LONGEST_S])
def test_seconds_that_cannot_be_are_unknown(seconds: float) -> None:
    row = of_round(pb.RoundCost(train_s=seconds, wait_s=seconds, cpu_s=seconds))
    assert (row["train_s"], row["wait_s"], row["cpu_s"], row["fetch_s"]) == (None, None, None, 0.0)


@pytest.mark.parametrize(
    "readings",
    [
        pb.Readings(energy_j=math.nan, energy_source=pb.ENERGY_SOURCE_RAPL),
        pb.Readings(energy_j=-1.0, energy_source=pb.ENERGY_SOURCE_RAPL),
        pb.Readings(energy_j=1e300, energy_source=pb.ENERGY_SOURCE_RAPL),
        pb.Readings(energy_j=5.0),
        pb.Readings(energy_j=5.0, energy_source=99),  # type: ignore[arg-type]
        pb.Readings(temperature_c=math.nan),
        pb.Readings(temperature_c=1e9),
    ],
)
def test_readings_that_cannot_be_are_left_out(readings: pb.Readings) -> None:
    assert set(of_training(pb.TrainCost(readings=readings))) == set(of_training(pb.TrainCost()))


def test_huge_counts_are_cut_to_what_sums_can_hold() -> None:
    row = of_training(
        pb.TrainCost(
            peak_rss_bytes=2**64 - 1, samples_done=2**64 - 1, readings=pb.Readings(peak_gpu_bytes=2**64 - 1)
        )
    )
    assert row["peak_rss_bytes"] == row["samples_done"] == row["peak_gpu_bytes"] == MOST


def test_of_a_device_is_kept_what_it_says() -> None:
    said = pb.Device(machine="aarch64", cores=4, python="3.11.2", asked="cpu", threads=2, watts=7.5)
    assert of_device(said) == {
        "machine": "aarch64", "cores": 4, "python": "3.11.2", "asked": "cpu", "threads": 2, "watts": 7.5
    }  # fmt: skip
    assert of_device(pb.Device()) == {}


@pytest.mark.parametrize("watts", [math.nan, math.inf, -math.inf, -1.0])
def test_watts_that_cannot_be_are_not_kept(watts: float) -> None:
    assert of_device(pb.Device(watts=watts)) == {}


def test_words_of_a_device_have_an_end() -> None:
    x = "x" * 9999
    long = pb.Device(machine=x, system=x, torch=x, compute=x, python=x, asked=x)
    short = dict.fromkeys(("machine", "torch", "compute", "python", "asked"), x[:40])
    assert of_device(long) == {**short, "system": x[:80]}


def test_of_a_progress_that_is_kept_nothing_is_kept_that_nobody_knows() -> None:
    unknown = b"\xfa\x3f\x80\x08" + bytes(1024)  # field 1023 with a KiB
    known = pb.Progress(round=3, steps_done=2, temperature_c=0.0)
    said = pb.Progress.FromString(known.SerializeToString() + unknown)
    kept = of_progress(said)
    assert said.ByteSize() > 1024
    assert kept == known
    assert kept.ByteSize() < 32
