"""The benchmark of metering guards meters that are there, and turns them on and off by the round."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.children import environment
from benchmarks.metering import Case, Mark, _around, _blocks, _interval
from benchmarks.switched import BLOCK, Gate, Mode, mode


class Meter:
    def __init__(self) -> None:
        self.read = 0

    def look(self) -> str:
        self.read += 1
        return "read"

    def twice(self) -> str:
        return self.look() + self.look()


def test_blocks_without_meters_stand_around_those_with() -> None:
    blocks = [mode(1 + BLOCK * number) for number in range(9)]
    assert blocks == [Mode.OFF, Mode.ON, Mode.OFF, Mode.TIMED] * 2 + [Mode.OFF]
    assert {mode(round) for round in range(1, BLOCK + 1)} == {Mode.OFF}


def test_a_closed_gate_calls_nothing_and_a_timed_meter_counts_once(tmp_path: Path) -> None:
    class Guarded(Meter):
        pass

    gate, meter = Gate(tmp_path / "marks"), Guarded()
    gate.guard(Guarded, "look", lambda *_: "off")
    gate.guard(Guarded, "twice")
    said = []
    for block in range(4):
        gate.at(1 + BLOCK * block)
        said.append((meter.twice(), meter.read))
    assert said == [("offoff", 0), ("readread", 2), ("offoff", 2), ("readread", 4)]
    gate.at(1 + 4 * BLOCK)
    gate.close()
    spent = [float(line.split()[3]) for line in (tmp_path / "marks").read_text().splitlines()]
    assert spent[:4] == [0.0] * 4
    assert 0 < spent[4] < 1


def test_a_metered_block_is_compared_with_those_around_it() -> None:
    case = Case("", "", (), 0, turns=2)
    marks = [Mark(number, float(number), 0.0, 0.0) for number in range(case.blocks * BLOCK + 1)]
    blocks = _blocks(marks, case)
    assert [(block[0].round, block[-1].round) for block in blocks[:2]] == [(2, BLOCK), (BLOCK + 2, 2 * BLOCK)]
    assert _around([float(number**2) for number in range(case.blocks)]) == [(26.0, 25.0)]
    assert _interval([(1.0, 1.0 + number) for number in range(100)]) == (40.0, 61.0)


@pytest.mark.parametrize("name", ["fl-server", "fl-client"])
def test_all_that_the_switch_guards_is_there(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.switched", str(tmp_path / "marks"), name, "--help"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {name}")
