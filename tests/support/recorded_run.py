"""A recorded run, its disk after a power cut at any instant, and whether a server can start from there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from edgeflock.server.engine.open_round import OpenRound
from edgeflock.server.files import run_dir as rundir
from edgeflock.server.journal.schema import read_only
from edgeflock.server.start import startup
from edgeflock.server.start.resolve import combine
from edgeflock.server.start.startup import Parts
from support import powerloss
from support.filecalls import Call, Recorder
from support.powerloss import Disk, Image
from support.processes import Flock, Program

OPTIONS = {"clients": 2, "rounds": 3, "seed": 5, "deadline": 60.0, "model": "linear", "keep_every": 2}
FLAGS = tuple(f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items())
HOST = "c0,c1"


@dataclass(frozen=True)
class Recording:
    """The calls of the server's lives, one list for each, and what the run left in the end."""

    lives: list[list[Call]]
    folder: Path  # of the disk
    sha256: str
    books: Books
    base: Image = field(default_factory=dict)  # what was on the disk before
    committed: int = 0  # the round that the first of the lives goes on from
    epoch: int = 0


@dataclass(frozen=True)
class Books:
    """What the journal says: by round digests, cohort and verdicts; and the seats."""

    digests: dict[int, tuple[str, str]]
    cohorts: dict[int, str]
    verdicts: dict[int, dict[int, tuple[bytes, str]]]
    seats: list[tuple[int, str]]


def books(run_dir: Path) -> Books:
    with contextlib.closing(read_only(run_dir / rundir.JOURNAL)) as journal:

        def rows(query: str) -> list[Any]:
            return journal.execute(query).fetchall()

        verdicts: dict[int, dict[int, tuple[bytes, str]]] = {}
        for round, index, *verdict in rows(
            "SELECT round, seat, digest, verdict FROM outcomes ORDER BY epoch"
        ):
            verdicts.setdefault(round, {})[index] = tuple(verdict)
        return Books(
            {
                n: (m, s)
                for n, m, s in rows("SELECT round, model_digest, state_digest FROM rounds WHERE committed")
            },
            dict(rows("SELECT round, cohort FROM rounds WHERE cohort <> '[]'")),
            verdicts,
            rows("SELECT seat, client_id FROM seats ORDER BY seat"),
        )


# ------------------------------------------------------------------------------ recording


def flock_on_a_disk(folder: Path) -> Flock:
    """A flock whose run directory lies in a folder of its own: the disk that loses its power."""
    (folder / "disk").mkdir(parents=True)
    return Flock(folder, seen=folder / "disk" / "run")


def recorded(flock: Flock, life: int, *flags: str) -> tuple[Program, Recorder]:
    gate = flock.folder / f"gate-{life}"
    server = flock.begin_server(*flags, gate=gate)
    return server, Recorder(server, gate)


def record(folder: Path, kills: int = 0) -> Recording:
    """Record a run to its end; its server is killed so many times, which is no power loss."""
    flock, lives = flock_on_a_disk(folder), []
    try:
        server, recorder = recorded(flock, 0, *FLAGS)
        server.wait_for("listening")
        client = flock.client(HOST)
        for life in range(1, kills + 1):
            server.wait_for("round_committed")
            server.kill()
            lives.append(recorder.calls())
            server, recorder = recorded(flock, life)
        assert [server.ended(), client.ended()] == [0, 0]
        return Recording([*lives, recorder.calls()], folder / "disk", flock.sha256(), books(flock.run_dir))
    finally:
        flock.close()


def record_going_back(folder: Path, undisturbed: Recording) -> Recording:
    """Record a server that finds its newest checkpoint damaged and no spool: it goes back in a new epoch."""
    flock = flock_on_a_disk(folder)
    try:
        number = leave_a_damaged_round(flock)
        base = powerloss.read(folder / "disk")
        server, recorder = recorded(flock, 1)
        server.wait_for("listening")
        client = flock.client(HOST)
        assert [server.ended(), client.ended()] == [0, 0]
        lives, known = [recorder.calls()], undisturbed
        return Recording(lives, folder / "disk", known.sha256, known.books, base, number - 1, epoch=1)
    finally:
        flock.close()


def leave_a_damaged_round(flock: Flock) -> int:
    """Leave a run that was killed, its newest checkpoint empty, its spool gone; return that round."""
    server, client = flock.server(*FLAGS), flock.client(HOST)
    server.wait_for("round_committed", count=2)
    server.kill()
    client.kill()
    number = max(books(flock.run_dir).digests)
    (flock.run_dir / "rounds" / f"{number:06d}" / "model.safetensors").write_bytes(b"")
    shutil.rmtree(flock.run_dir / "spool")
    return number


# ------------------------------------------------------------------------------ instants


@dataclass
class Said:
    """What the server had said at an instant: nothing of it may be lost."""

    committed: int = 0
    listening: bool = False
    ended: bool = False

    def hear(self, call: Call) -> None:
        if call.name != "write" or call.arguments[0] not in (1, 2):
            return
        text = bytes(call.arguments[1])  # type: ignore[arg-type]
        for line in text.splitlines():
            if b'"event": "round_committed"' in line:
                self.committed = json.loads(line)["round"]
        self.listening = self.listening or b'"event": "listening"' in text
        self.ended = self.ended or b'"event": "ended"' in text


def instants(recording: Recording) -> Iterator[tuple[int, Disk, Said]]:
    """Give number, disk and what was said, after each call that changes what a power cut may leave."""
    disk, number = Disk(recording.folder, recording.base), 0
    said = Said(recording.committed, listening=bool(recording.base))
    yield number, disk, said
    for life in recording.lives:
        disk.forget_process()
        for call in life:
            said.hear(call)
            if disk.do(call):
                number += 1
                yield number, disk, said


# ------------------------------------------------------------------------------ opening


def opened(run_dir: Path, said: Said) -> Parts | None:
    """Start as fl-server does; None: the run is over. The flags are not needed once it has listened."""
    config = combine({**({} if said.listening else OPTIONS), "run_dir": run_dir})
    if startup.already_over(run_dir, config) is not None:
        return None
    built = startup.build(config)
    with rundir.locked(run_dir), startup.taken_up(built, run_dir) as parts:
        return parts


def received(parts: Parts) -> dict[int, bytes]:
    """Return which updates of the open round count as received, with their digests."""
    resumed, learner = parts.resumed, parts.built.learner
    if resumed.open_round is None or resumed.finished:
        return {}
    round = learner.round(resumed.open_round.round, resumed.open_round.cohort, resumed.samples)
    work = learner.open(
        round, parts.files.checkpoints.model_path(round.number - 1), parts.files.spool.packages(round.number)
    )
    members = (*round.cohort, *(resumed.added or ()))
    entries = parts.files.spool.prepare(round.number, members, work.upload_limit)
    opened = OpenRound(work, entries, began=0.0)
    opened.restore()
    return {seat: update.package.digest for seat, update in opened.updates.items()}


def check(run_dir: Path, said: Said, recording: Recording) -> str:
    """Open what the power cut left; return how far it is."""
    with capture_logs() as logs:
        parts = opened(run_dir, said)
    names = [entry["event"] for entry in logs]
    if parts is None or parts.resumed.finished:
        assert hashlib.sha256((run_dir / "model.safetensors").read_bytes()).hexdigest() == recording.sha256
        return "over"
    assert not said.ended, "the end is forgotten"
    resumed, known = parts.resumed, recording.books
    assert recording.epoch or not {"checkpoint_damaged", "round_begins_anew"} & set(names), names
    assert resumed.epoch == recording.epoch
    assert resumed.committed in (said.committed, said.committed + 1), resumed.committed
    assert parts.built.learner.written is not None
    assert parts.built.learner.written.digest == known.digests[resumed.committed][0]
    found = books(run_dir)
    for number in range(resumed.committed + 1):
        assert found.digests[number] == known.digests[number]
        assert found.verdicts.get(number) == known.verdicts.get(number), number
    assert found.seats == known.seats or (not found.seats and not resumed.committed)
    assert all(cohort == known.cohorts[number] for number, cohort in found.cohorts.items())
    check_received(parts, known)
    return "same" if resumed.committed == said.committed else "next"


def check_received(parts: Parts, known: Books) -> None:
    opening = parts.resumed.open_round
    there = received(parts)
    if opening is not None:
        digests = {index: digest for index, (digest, _) in known.verdicts[opening.round].items()}
        assert there.items() <= digests.items(), "an update that is not of this round counts as received"
