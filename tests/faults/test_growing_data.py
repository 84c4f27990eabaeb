"""Own data that grow while a run goes on: what an update is made of, after a kill, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import processes
from support.processes import Flock, Program, until

DATA = ("--data=support.growing_data:load", "--refresh=round")


def started(flock: Flock) -> Program:
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / 'state'}", "--give-up-after=30")
    environ = {"CALLS": str(flock.folder / "calls")}
    return flock.start("fl-client", "--id=c0", *place, *DATA, environ=environ)


def held(folder: Path, *, kill: bool) -> tuple[str, list[int]]:
    """Hold a run of two rounds; return the model and of how many samples the updates were."""
    folder.mkdir()
    with processes.flock(folder) as flock:
        server = flock.server("--clients=1", "--rounds=2", "--steps=1500", "--batch-size=8")
        client = started(flock)
        notes = folder / "state/clients/c0/runs"
        if kill:
            until(lambda: any('"round": 2' in file.read_text() for file in notes.glob("*/data.json")) or None,
                  lambda: "round 2 has begun")  # fmt: skip
            client.kill()
            client = started(flock)
        assert [server.ended(), client.ended()] == [0, 0]
        settled = [entry for program in flock.programs for entry in program.events("update_settled")]
        return flock.sha256(), [int(entry["samples"]) for entry in settled]


@pytest.mark.long
@pytest.mark.promise("R5", "R13")
def test_a_client_that_is_killed_in_a_round_goes_on_with_the_samples_of_its_beginning(tmp_path: Path) -> None:
    """They grow by ten with every reading: at the start, and for each of the rounds."""
    undisturbed = held(tmp_path / "calm", kill=False)
    assert undisturbed[1] == [50, 60]
    assert held(tmp_path / "killed", kill=True) == undisturbed
