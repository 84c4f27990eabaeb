"""Every method, run by the real commands, ends in the bits that were recorded: no restructuring changes them.

The runs, and the SHA-256 of the models they end with, stand in `final_bits.json`. Bits hold for one kind of
processor and one version of torch (docs/architecture.md), so they stand there by the fingerprint of a
calculation by torch alone; where this is another one, the runs are skipped.

    PYTHONPATH=tests .venv/bin/python -m support.final_bits --record

runs twice whatever has no bits on this machine yet, and writes them down; with names of runs it does these
alone, anew. Record BEFORE the code is changed, at a commit that is known to be right; and anew only for a
change of what a method calculates.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support import final_bits
from support.final_bits import RECORD, fingerprint, machine
from support.processes import flock

TABLE = final_bits.read()


def test_every_method_has_a_run_in_the_table(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        listing = made.start("fl-lab", "methods")
        assert listing.ended() == 0
        methods = {line.split()[0] for line in listing.text.splitlines()}
    missing = methods - TABLE.runs.keys()
    way = f"write a row for each into the runs of {final_bits.TABLE.name}, such as {{}}, then: {RECORD}"
    assert not missing, f"no run holds the final bits of {', '.join(sorted(missing))}: {way}"
    assert {final_bits.method_of(name) for name in TABLE.runs} == methods


@pytest.mark.parametrize("digest", TABLE.recorded)
def test_no_two_runs_end_in_the_same_bits(digest: str) -> None:
    """Otherwise what tells them apart would be held by neither."""
    ends = TABLE.recorded[digest].sha256
    assert ends.keys() <= TABLE.runs.keys()
    assert len(set(ends.values())) == len(ends)


@pytest.mark.parametrize("name", TABLE.runs)
def test_a_run_ends_in_the_recorded_bits(name: str, tmp_path: Path) -> None:
    known = TABLE.recorded.get(fingerprint())
    if known is None:
        pytest.skip(
            f"this processor or torch gives other bits: fingerprint {fingerprint()} here ({machine()}), "
            f"{' and '.join(TABLE.recorded)} recorded; at a commit that is right, record with: {RECORD}"
        )
    assert name in known.sha256, f"{name!r} has no bits yet; at a commit that is right, record with: {RECORD}"
    meant = f"the final model of {name!r} has other bits; only where that is meant: {RECORD} {name!r}"
    assert TABLE.end(name, tmp_path) == known.sha256[name], meant
