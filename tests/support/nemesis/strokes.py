"""What each kind of fault does to the federation: a function that strikes, waits by yielding, and mends."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias

from support import clock
from support.nemesis.ends import End
from support.nemesis.field import LISTEN, Field
from support.nemesis.schedule import SERVER, Stroke
from support.nemesis.strangers import stranger
from support.powerloss import Cut, Fate
from support.processes import Program
from support.strace import Tracer, is_traced

Course: TypeAlias = Generator[float, None, None]  # yields the seconds after which it is looked at again
_SOON = 0.01
_ASKED_S = 5.0  # a question takes that long at most, on a busy machine
_PATIENCE_S = 60.0  # for what a process does by itself; no measure
_FATES = (
    (Fate.LOST, Fate.KEPT, Fate.FIRST, Fate.ANY),
    (Fate.LOST, Fate.KEPT, Fate.FIRST, Fate.ANY, Fate.SIZE),
)


class Missed(Exception):
    """Whoever was to be struck was not there."""


def _late(field: Field, stroke: Stroke) -> Course:
    with _down(field.ends[stroke.target]):
        yield stroke.seconds


def _kill(field: Field, stroke: Stroke) -> Course:
    end = _living(field, stroke)
    with _down(end):
        end.kill()
        yield stroke.seconds


def _term(field: Field, stroke: Stroke) -> Course:
    end = _living(field, stroke)
    if end.asked:
        raise Missed  # a second SIGTERM is another word
    end.asked = True
    end.signal(signal.SIGTERM)
    yield from _until(lambda: not end.program, f"{end.name} has not gone after SIGTERM")
    with _down(end):
        yield stroke.seconds


def _stop(field: Field, stroke: Stroke) -> Course:
    program = _program(field, stroke)
    program.signal(signal.SIGSTOP)
    yield stroke.seconds
    if program.process.is_alive():
        with contextlib.suppress(ProcessLookupError):
            program.signal(signal.SIGCONT)


def _full(field: Field, stroke: Stroke) -> Course:
    end = field.ends[stroke.target]
    end.fill()
    try:
        yield stroke.seconds
    finally:
        end.free()


def _lock(field: Field, stroke: Stroke) -> Course:
    """Another program writes to the journal and does not come to an end."""
    journal = field.server.folder / "journal.sqlite"
    if not journal.exists() or not journal.stat().st_size:
        raise Missed
    uri = f"file:{journal}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)) as other:
        for _ in range(100):
            try:
                other.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                yield _SOON
        else:
            raise Missed
        yield stroke.seconds


def _stall(field: Field, stroke: Stroke) -> Course:
    """The next write of each thread takes so long."""
    end = _living(field, stroke)
    if is_traced(_program(field, stroke)):
        raise Missed  # for its calls, or by another stall
    gate = field.flock.folder / f"stall-{stroke.dice}"
    slow = f"delay_enter={int(stroke.seconds * 1e6)}:when=1"
    tracer = Tracer(_program(field, stroke), gate, "pwrite64", slow)
    try:
        yield from _until(lambda: bool(tracer.delayed) or not end.program, "no write", least_s=3.0)
        if tracer.delayed and _may_answer(field, stroke):
            yield from _answered(field, stroke)
        else:
            yield stroke.seconds
    finally:
        tracer.close()


def _may_answer(field: Field, stroke: Stroke) -> bool:
    """Whether there is time enough for a question, and nothing else that stops the answer."""
    others = {other.kind for other in field.schedule.strokes if other.target == stroke.target}
    return stroke.target == SERVER and stroke.seconds > _ASKED_S and "stop" not in others


def _answered(field: Field, stroke: Stroke) -> Course:
    """The operator is answered while the write stalls."""
    program, began = _program(field, stroke), time.monotonic()
    asked = field.flock.start("fl-lab", "control", str(field.server.folder), "status")
    while time.monotonic() < began + stroke.seconds:
        yield _SOON
        if not asked.process.is_alive() and field.server.program is program and asked.process.exitcode:
            field.findings.append(f"while a write stalls: {asked.sentence()}")
            return
    if asked.process.is_alive() and field.server.program is program:
        field.findings.append(f"the operator is not answered while a write stalls for {stroke.seconds:.1f} s")


def _second(field: Field, stroke: Stroke) -> Course:
    """The same command once more, on a directory that is in use."""
    end = _living(field, stroke)
    first = _program(field, stroke)
    other = field.flock.start(end.command, *end.words)
    try:
        yield from _until(
            lambda: not other.process.is_alive() or end.program is not first, "", stroke.seconds
        )
        code = other.process.exitcode
        if end.program is first and code not in (None, 2):
            field.findings.append(f"a second {end.name} ended with {code}: {other.sentence()}")
    finally:
        other.kill()


def _power(field: Field, stroke: Stroke) -> Course:
    end = _living(field, stroke)
    if not end.disk:
        raise Missed  # its clock is faked
    dice = random.Random(stroke.dice)
    with _down(end):
        end.cut_power(Cut(dice.choice(_FATES[0]), dice.choice(_FATES[1]), dice.randrange(1 << 30)))
        yield stroke.seconds


def _rollback(field: Field, stroke: Stroke) -> Course:
    """A directory is put back from a copy, some rounds later; that of a server is copied while it is down."""
    end = _living(field, stroke)
    if end.disk:
        raise Missed  # its disk is another matter
    dice, copy = random.Random(stroke.dice), field.flock.folder / f"copy-{stroke.dice}"
    if stroke.target == SERVER:
        end.kill()
    if not end.copy(copy):
        raise Missed
    then = field.progress.committed + dice.randint(1, 3)
    while field.progress.committed < then and not field.progress.ended:
        yield _SOON
    if field.progress.ended or not end.program:
        raise Missed
    with _down(end):
        end.kill()
        field.read()
        if not field.progress.ended:  # else nobody would come back to the older one
            end.put(copy)
        yield stroke.seconds


def _clone(field: Field, stroke: Stroke) -> Course:
    """Another device has a copy of its directory, and is there at the same time."""
    end = _living(field, stroke)
    copy = field.flock.folder / f"clone-{stroke.dice}"
    if field.progress.ended or not end.copy(copy):
        raise Missed
    words = [word for word in end.words if not word.startswith("--state-dir")]
    clone = field.flock.start(end.command, *words, f"--state-dir={copy}")
    try:
        yield stroke.seconds
    finally:
        clone.kill()


def _pause(field: Field, stroke: Stroke) -> Course:
    _program(field, stroke)
    yield from _control(field, "pause")
    yield stroke.seconds
    while not (yield from _control(field, "resume")) and not field.server.over:
        yield 0.3


def _control(field: Field, *words: str) -> Generator[float, None, bool]:
    """One call of the operator; returns whether it was answered."""
    asked = field.flock.start("fl-lab", "control", str(field.server.folder), *words)
    yield from _until(lambda: not asked.process.is_alive(), f"fl-lab control {words} does not end")
    return asked.process.exitcode == 0


def _port(field: Field, stroke: Stroke) -> Course:
    """The server dies, and another run has its port until it comes back."""
    end = _living(field, stroke)
    with _down(end):
        end.kill()
        with stranger(field.flock, "fl-server", stroke.dice, LISTEN):
            yield stroke.seconds


def _cut(field: Field, stroke: Stroke) -> Course:
    link = field.links[stroke.target]
    link.refuses = True
    link.reset_all()
    yield stroke.seconds
    link.refuses = False


def _part(field: Field, stroke: Stroke) -> Course:
    link = field.links[stroke.target]
    link.part()
    yield stroke.seconds
    link.heal()


def _mute(field: Field, stroke: Stroke) -> Course:
    link = field.links[stroke.target]
    link.mute = True
    yield stroke.seconds
    link.mute = False
    link.reset_all()  # of what has lost bytes nothing is to be had any more


def _slow(field: Field, stroke: Stroke) -> Course:
    link, before = field.links[stroke.target], field.links[stroke.target].rate
    link.rate = float(stroke.detail)
    yield stroke.seconds
    link.rate = before


def _lag(field: Field, stroke: Stroke) -> Course:
    link, before = field.links[stroke.target], field.links[stroke.target].lag_s
    link.lag_s = float(stroke.detail)
    yield stroke.seconds
    link.lag_s = before


def _stranger(field: Field, stroke: Stroke) -> Course:
    """Somebody else is behind the address for a while."""
    link = field.links[stroke.target]
    mine = link.upstream
    with stranger(field.flock, stroke.detail, stroke.dice) as theirs:
        link.upstream = theirs
        link.reset_all()
        yield stroke.seconds
        link.upstream = mine
        link.reset_all()


def _jump(field: Field, stroke: Stroke) -> Course:
    its_clock = field.ends[stroke.target].clock
    assert its_clock is not None
    clock.set_to(its_clock.file, stroke.detail)
    yield 0.0


KINDS: dict[str, Callable[[Field, Stroke], Course]] = {
    "late": _late,
    "kill": _kill,
    "term": _term,
    "stop": _stop,
    "full": _full,
    "lock": _lock,
    "long lock": _lock,
    "stall": _stall,
    "second": _second,
    "power": _power,
    "rollback": _rollback,
    "clone": _clone,
    "pause": _pause,
    "port": _port,
    "cut": _cut,
    "part": _part,
    "mute": _mute,
    "slow": _slow,
    "lag": _lag,
    "stranger": _stranger,
    "jump": _jump,
}


@contextlib.contextmanager
def _down(end: End) -> Iterator[None]:
    """Nobody starts it meanwhile."""
    end.holds += 1
    try:
        yield
    finally:
        end.holds -= 1


def _living(field: Field, stroke: Stroke) -> End:
    _program(field, stroke)
    return field.ends[stroke.target]


def _program(field: Field, stroke: Stroke) -> Program:
    program = field.ends[stroke.target].program
    if not program:
        raise Missed
    return program


def _until(look: Callable[[], bool], what: str, least_s: float = _PATIENCE_S) -> Course:
    """Wait until it is seen; if it never is, that is wrong, or nothing to speak of."""
    end = time.monotonic() + least_s
    while not look():
        if time.monotonic() > end:
            if least_s == _PATIENCE_S:
                raise AssertionError(what)
            return
        yield _SOON
