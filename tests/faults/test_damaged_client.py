"""A client's outbox and states that have rotted: never another update or state than the one written."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.client.costs import TrainCost
from edgeflock.client.keeping.outbox import Outbox, OutboxEntry
from edgeflock.client.keeping.store import Store
from edgeflock.client.protocol import Generation
from edgeflock.common.payload.checksum import Marks
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Section
from edgeflock.methods.kit.values import State
from support import damage, spool_logs
from support.damage import Damaged
from support.processes import Flock, Program, run_to_the_end, until
from support.promises import Trials

SIZE = 9000  # bytes of a payload
RUN = "run1"


def filled_outbox(folder: Path) -> OutboxEntry:
    payload = random.Random(1).randbytes(SIZE)
    section = Section(Kind.DELTA, b"L" * 16, CodecChoice(), SIZE // 4, SIZE)
    marks = Marks.of([payload])
    package = Package((section,), {"loss": 1 / 3, "steps": 7.0}, marks.value)
    entry = OutboxEntry(
        RUN, Description(3, package, 42, moved=True), TrainCost(1.5, 0.5, 1000, 0.25, 99), marks
    )
    Outbox(folder).put(entry, [payload])
    return entry


def found_update(folder: Path, put: OutboxEntry) -> str:
    """Open the outbox as a client that starts: the update itself, or none and a line."""
    with capture_logs() as logs:
        entry = Outbox(folder).entry
    if entry is None:
        assert [line["event"] for line in logs] == ["outbox_discarded"]
        return "discarded"
    assert replace(entry, marks=put.marks) == put
    assert entry.marks.value == put.marks.value
    return "whole"


def state(round: int) -> State:
    generator = torch.Generator().manual_seed(round)
    return State({"residual": torch.randn(1500, generator=generator)}, {"round": float(round), "mu": 0.1})


def stamp(round: int) -> Generation:
    return Generation(round, bytes([round]) * 16)


def filled_store(folder: Path) -> None:
    """Two generations, and the candidate of the update in the outbox."""
    store = Store(folder, RUN)
    for round in (1, 2):
        store.stage(state(round), stamp(round))
        store.promote(stamp(round))
    store.stage(state(3), stamp(3))


def found_state(folder: Path, _: object = None) -> str:
    """Load the state as a client that starts: that of the newest round, or an empty one and a line."""
    with capture_logs() as logs:
        store = Store(folder, RUN)
        loaded = store.load()
    if loaded == State():
        assert [line["event"] for line in logs] == ["state_lost"]
        assert store.generations() == ()
        return "lost"
    assert [generation.round for generation in store.generations()] == [1, 2]
    return "whole" if equal(loaded, state(2)) else "WRONG"


def found_candidate(folder: Path, _: object = None) -> str:
    """Look for the candidate as a client that starts, and promote it if it is said to be there."""
    with capture_logs():
        store = Store(folder, RUN)
        if not store.staged(stamp(3)):
            return "torn"
        store.promote(stamp(3))
        return "whole" if equal(Store(folder, RUN).load(), state(3)) else "WRONG"


def equal(one: State, other: State) -> bool:
    same = one.vectors.keys() == other.vectors.keys() and one.scalars == other.scalars
    return same and all(torch.equal(vector, other.vectors[name]) for name, vector in one.vectors.items())


RUNS = f"runs/{RUN}"
LOOKS: dict[str, tuple[Callable[..., str], int]] = {  # by file: who looks at it, and the size of its header
    "outbox/payload": (found_update, 64),
    "outbox/meta": (found_update, 10_000),
    f"{RUNS}/state-000002.safetensors": (found_state, 400),
    f"{RUNS}/state-000001.safetensors": (found_state, 400),
    f"{RUNS}/candidate.safetensors": (found_candidate, 400),
}


def filled(folder: Path) -> OutboxEntry:
    """What a client has on its disk while its update of round 3 is not settled."""
    folder.mkdir(parents=True)
    filled_store(folder)
    return filled_outbox(folder)


def try_all(folder: Path, name: str, cases: Iterable[Damaged], trials: Trials) -> Counter[str]:
    put = filled(folder / "good")
    outcomes: Counter[str] = Counter()
    for what, content in cases:
        copy = damage.copied(folder / "good", folder / "copy")
        (copy / name).write_bytes(content)
        with trials(f"{name}, {what}"):
            outcomes[outcome := LOOKS[name][0](copy, put)] += 1
            assert outcome != "WRONG"
    return outcomes


def cases(folder: Path, name: str, count: int, dice: random.Random) -> Iterable[Damaged]:
    filled(folder)
    return damage.everything((folder / name).read_bytes(), LOOKS[name][1], count, dice)


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    with damage.quick_folder(tmp_path) as folder:
        yield folder


@pytest.mark.promise("R3")
@pytest.mark.parametrize("name", LOOKS)
def test_some_damage_to_a_clients_file(quick: Path, trials: Trials, name: str) -> None:
    dice = random.Random(9)
    some = damage.some(cases(quick / "0", name, 100, dice), 40, dice)
    outcomes = try_all(quick, name, [*some, ("empty", b"")], trials)
    noticed = outcomes.total() - outcomes["whole"]
    assert noticed == outcomes.total() or "000001" in name, outcomes  # the older state is not looked into


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.promise("R3")
@pytest.mark.parametrize("name", LOOKS)
def test_every_damage_to_a_clients_file(quick: Path, trials: Trials, name: str) -> None:
    try_all(quick, name, cases(quick / "0", name, 1000, random.Random(10)), trials)
    assert trials.tried > 1000


@pytest.mark.promise("R3")
def test_states_in_each_others_place_are_not_loaded(tmp_path: Path) -> None:
    filled(tmp_path / "good")
    older, newer, candidate = (
        tmp_path / "good" / name for name in (*list(LOOKS)[3:1:-1], f"{RUNS}/candidate.safetensors")
    )
    contents = [path.read_bytes() for path in (older, newer, candidate)]
    older.write_bytes(contents[1])
    newer.write_bytes(contents[0])
    assert found_state(tmp_path / "good") == "lost"
    candidate.write_bytes(contents[1])
    assert found_candidate(tmp_path / "good") == "torn"


# ------------------------------------------------------------------------------ real processes

TOPK = ("--clients=2", "--rounds=8", "--seed=7", "--deadline=60", "--codec=topk:0.1")  # clients keep state


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_to_the_end(tmp_path_factory.mktemp("undamaged"), TOPK, ("c0", "c1"))


def died_with_an_update(flock: Flock, too: Callable[[Flock], bool] = lambda _: True) -> Path:
    """Leave a server that waits for c0, and c1 dead with its update of the open round; return c1's folder."""
    server = flock.server(*TOPK)
    absent, victim = flock.clients("c0", "c1")
    server.wait_for("round_committed", count=3)
    absent.kill()
    folder = flock.folder / "clients" / "c1" / "clients" / "c1"
    meta = folder / "outbox" / "meta"
    until(lambda: (waits(flock, meta) and too(flock)) or None, lambda: server.text[-2000:])
    victim.kill()
    return folder


def waits(flock: Flock, meta: Path) -> bool:
    """Whether the update of c1 is of an open round for which c0 has sent nothing."""
    content = meta.read_bytes() if meta.exists() else b""
    if not content.startswith(b"{"):  # it holds nothing now
        return False
    number = json.loads(content.splitlines()[0])["round"]
    ((opened,),) = flock.rows("SELECT max(round) FROM rounds WHERE committed = 0") or [(None,)]
    return bool(opened == number) and not spool_logs.sent(flock.run_dir, number, 0)


def arrived(flock: Flock) -> bool:
    """Whether the update of c1 is complete in the spool: its header, and a mark behind the payload."""
    newest = max((flock.run_dir / "spool").glob("[0-9]*[0-9]"))
    return spool_logs.arrived(flock.run_dir, int(newest.name), 1)


@pytest.mark.long
@pytest.mark.promise("R3")
@pytest.mark.parametrize("both", [False, True], ids=["update torn", "update and candidate torn"])
def test_a_torn_update_that_counted_rounds_ago_moves_the_state_or_is_said_to_be_lost(
    flock: Flock, both: bool
) -> None:
    """The server had all of it, and went on without the device for so long that no view tells its verdict."""
    folder = died_with_an_update(flock, arrived)
    spoil(folder / "outbox" / "meta", "empty")
    (candidate,) = folder.glob("runs/*/candidate.safetensors")
    spoil(candidate, "flip") if both else None
    flock.programs[0].kill()
    alone, here = flock.server("--deadline=1", "--min-updates=1"), flock.client("c0")
    alone.wait_for("round_committed", count=4)
    alone.kill()
    server, victim = flock.server("--deadline=60"), flock.client("c1")
    assert [server.ended(), here.ended(), victim.ended()] == [0, 0, 0]
    assert bool(victim.events("state_lost")) == both
    assert victim.events("update_settled", counted=True)
    late = [number for number, verdict in flock.verdicts("c1").items() if verdict == "late"]
    assert len(late) >= 3


def finish(flock: Flock) -> Program:
    absent, victim = flock.clients("c0", "c1")
    assert [flock.programs[0].ended(), absent.ended(), victim.ended()] == [0, 0, 0]
    return victim


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    flipped = damage.flipped(content, len(content) // 2, random.Random(1))[1]
    path.write_bytes({"flip": flipped, "cut": content[: len(content) // 2], "empty": b""}[how])


@pytest.mark.promise("R3")
@pytest.mark.parametrize(
    ("name", "how"), [("payload", "flip"), ("payload", "cut"), ("meta", "flip"), ("meta", "empty")]
)
def test_a_damaged_update_costs_no_bit(flock: Flock, undamaged: str, name: str, how: str) -> None:
    """It is trained again; or the server had it and counts it, and the state after it is still there."""
    spoil(died_with_an_update(flock) / "outbox" / name, how)
    assert finish(flock).events("outbox_discarded")
    assert flock.sha256() == undamaged


@pytest.mark.promise("R3")
@pytest.mark.parametrize("how", ["flip", "cut", "empty"])
def test_a_damaged_candidate_costs_no_bit_or_is_said_to_be_lost(
    flock: Flock, undamaged: str, how: str
) -> None:
    (candidate,) = died_with_an_update(flock).glob("runs/*/candidate.safetensors")
    spoil(candidate, how)
    victim = finish(flock)
    assert victim.events("outbox_discarded")
    assert victim.events("state_lost") or flock.sha256() == undamaged


@pytest.mark.promise("R3")
def test_a_damaged_state_is_lost_and_said(flock: Flock) -> None:
    folder = died_with_an_update(flock)
    (folder / "outbox" / "meta").unlink()
    next(folder.glob("runs/*/candidate.safetensors")).unlink()
    newest = max(folder.glob("runs/*/state-*.safetensors"))
    content = newest.read_bytes()
    newest.write_bytes(damage.flipped(content, len(content) - 9, random.Random(2))[1])
    assert finish(flock).events("state_lost")
