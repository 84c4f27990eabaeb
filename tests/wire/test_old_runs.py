"""Runs that earlier edgeflocks have begun go on to the end, in the bits of the same run undisturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeflock.lab.history import read
from support import final_bits
from support.commands import run
from support.final_bits import fingerprint
from support.old_runs import PARKED, unpack
from support.processes import Flock, flock


def go_on(made: Flock, *flags: str) -> None:
    """Serve the run to its end, with the clients as they were; on another port, which may be taken here."""
    (made.run_dir / "address").unlink(missing_ok=True)
    clients = made.folder / "clients"
    clients.mkdir()
    hosts = [state.rename(clients / state.name).name for state in sorted(made.folder.glob("c[01]"))]
    server = made.server(*flags)
    ends = [server, *made.clients(*(hosts or ("c0,c1",)))]
    assert [end.ended() for end in ends] == [0] * len(ends)


@pytest.mark.parametrize("name", PARKED)
def test_a_parked_run_goes_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """FedTrip's clients have a memory of their own; theirs comes with them.

    One update was in the spool; where its description is in the form of before, it is delivered again.
    """
    if fingerprint() not in final_bits.read().recorded:
        pytest.skip(f"recorded on a processor or torch of other bits: fingerprint {fingerprint()} here")
    old = unpack(name, tmp_path)
    with flock(tmp_path) as made:
        go_on(made)
        assert made.sha256() == old.sha256
        assert made.rows("SELECT max(round), max(epoch) FROM rounds WHERE committed") == [(3, 0)]
    assert [round.verdicts for round in read(old.run_dir).rounds] == [{"counted": 2}] * 3


def test_a_run_that_has_ended_goes_on_with_more_rounds(tmp_path: Path) -> None:
    """Its last round, which asked all once more, gives way to the second one of training."""
    unpack("v6-last-round", tmp_path)
    with flock(tmp_path) as made:
        go_on(made, "--rounds=2")
        found = made.rows("SELECT epoch, round FROM rounds WHERE committed ORDER BY epoch, round")
        assert found == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]


def test_a_report_of_the_first_version_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    pytest.importorskip("jinja2", reason="edgeflock[lab] is not installed")
    old = unpack("v1-first", tmp_path)
    done = run("fl-lab", "report", str(old.run_dir), "--out=report", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.4068" in (tmp_path / "report" / "index.html").read_text("utf-8")
