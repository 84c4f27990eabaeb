"""A thousand rounds of mlp on digits with four hosted clients: memory, descriptors and threads stay flat."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.live_run import Sample, Spec, Watched, watch
from benchmarks.result import Benchmark, Row

MIB = 1 << 20
SLOPE_MIB = 1.0  # per 1,000 rounds
WARM_UP = 0.2  # share of the rounds
_HANDLES = ("fds", "threads")


def measure(rounds: int, repeats: int) -> Iterator[Row]:
    """One run, whatever the repeats: it is long enough."""
    with tempfile.TemporaryDirectory() as name:
        run = watch(Path(name), _spec(rounds))
    skip = int(rounds * WARM_UP)
    for end, samples in (("server", run.server), ("client", run.clients[0])):
        yield _memory(run, end, samples, rounds, skip)
        yield _handles(run, end, samples, skip)


def _spec(rounds: int) -> Spec:
    server = (
        *("--model", "mlp", "--dataset", "digits", "--clients", "4"),
        *("--rounds", str(rounds), "--log-level", "warning"),
    )
    client = ("--id", "host0", "--host-clients", "4", "--device", "cpu", "--log-level", "warning")
    return Spec(server, (client,), sample_s=0.25, limit_s=120 + rounds)


def _memory(run: Watched, end: str, samples: Sequence[Sample], rounds: int, skip: int) -> Row:
    grown = run.slope_per_round(samples, skip) * 1000 / MIB
    return Row(
        name=f"{end} RSS over {rounds} rounds, per 1,000",
        unit="MiB",
        measured=grown,
        target=f"< {SLOPE_MIB:g} MiB",
        held=grown < SLOPE_MIB,
        details={"rss": _thinned(run, samples)},
    )


def _handles(run: Watched, end: str, samples: Sequence[Sample], skip: int) -> Row:
    """Return how many more descriptors and threads the last third of the run needs than the first."""
    inside = run.between(samples, skip)
    third = len(inside) // 3
    shown = {name: [_usual(part, name) for part in (inside[:third], inside[-third:])] for name in _HANDLES}
    more = sum(max(0, last - first) for first, last in shown.values())
    return Row(
        name=f"{end} descriptors and threads, growth",
        unit="",
        measured=more,
        target="flat",
        held=more == 0,
        details={"usual_in_first_and_last_third": shown},
    )


def _usual(samples: Sequence[Sample], name: str) -> int:
    """Return the median: files are opened and closed all the time."""
    return int(statistics.median_low([getattr(sample, name) for sample in samples])) if samples else 0


def _thinned(run: Watched, samples: Sequence[Sample], points: int = 50) -> list[tuple[float, int]]:
    step = max(1, len(samples) // points)
    return [(run.round_at(sample.at), sample.rss) for sample in samples[::step]]


BENCHMARKS = {
    "soak": Benchmark("1,000 rounds of mlp/digits, 4 hosted clients", partial(measure, 1000)),
    "soak-quick": Benchmark("the same with 150 rounds", partial(measure, 150), quick=True),
}
