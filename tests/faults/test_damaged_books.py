"""A journal or a run.toml that has rotted is refused in a sentence, or the damage is where nothing stands."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.common.errors import CorruptCheckpoint, UsageError
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_toml import from_toml, to_toml
from edgeflock.server.start.resolve import combine
from support import damage
from support.damage import Damaged
from support.played_run import LAST, Played, come_back, decisions, same
from support.processes import Flock, run_to_the_end
from support.promises import Trials

JOURNAL, LOG = "journal.sqlite", "journal.sqlite-wal"
HEADERS = {JOURNAL: 100, LOG: 32 + 24}


def refusal(sentence: str) -> str:
    assert "\n" not in sentence
    assert "journal" in sentence
    return "refused"


def outcome(run: Played, copy: Path) -> str:
    """Start on a damaged copy: refused, harmless, or behind by the last transactions; else it is wrong."""
    try:
        back = come_back(copy)
    except CorruptCheckpoint as error:
        return refusal(str(error))
    committed = back.resumed.committed
    assert back.resumed.epoch == 0
    assert same(back.state, run.states[committed])
    assert back.resumed.seats == tuple((index, f"c{index}") for index in range(3))
    if committed == LAST:
        assert decisions(copy / "run") == decisions(run.run_dir)
        return "harmless"
    assert committed == LAST - 1
    assert back.said == ["round_not_committed"]
    before = decisions(copy / "run", upto=committed)
    assert before == decisions(run.run_dir, upto=committed)
    return "behind"


def try_all(
    run: Played, source: Path, folder: Path, name: str, cases: Iterable[Damaged], trials: Trials
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for what, content in cases:
        copy = folder / "copy"
        damage.copied(source, copy / "run")
        (copy / "run" / name).write_bytes(content)
        with trials(f"{name}, {what}"):
            outcomes[outcome(run, copy)] += 1
    return outcomes


def cases(source: Path, name: str, count: int, dice: random.Random) -> Iterable[Damaged]:
    return damage.everything((source / name).read_bytes(), HEADERS[name], count, dice)


@pytest.mark.promise("R3")
@pytest.mark.parametrize("name", [JOURNAL, LOG])
def test_some_damage_to_the_journal(folder: Path, run: Played, trials: Trials, name: str) -> None:
    dice = random.Random(6)
    some = damage.some(cases(run.killed, name, 100, dice), 20, dice)
    outcomes = try_all(run, run.killed, folder, name, [*some, ("empty", b"")], trials)
    assert outcomes["refused"], outcomes


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.promise("R3")
@pytest.mark.parametrize(("parked", "name"), [(True, JOURNAL), (False, JOURNAL), (False, LOG)])
def test_every_damage_to_the_journal(
    folder: Path, run: Played, trials: Trials, parked: bool, name: str
) -> None:
    source = run.run_dir if parked else run.killed
    outcomes = try_all(run, source, folder, name, cases(source, name, 1000, random.Random(7)), trials)
    assert outcomes["refused"], outcomes
    assert trials.tried > 1000


@pytest.mark.promise("R3")
@pytest.mark.parametrize("name", [JOURNAL, LOG])
def test_a_lost_journal_is_not_begun_anew(folder: Path, run: Played, name: str) -> None:
    damage.copied(run.killed, folder / "run")
    (folder / "run" / name).unlink()
    with pytest.raises(CorruptCheckpoint, match=f"holds round {LAST}"):
        come_back(folder)
    assert (folder / "run" / "rounds" / f"{LAST:06d}").exists()


# ------------------------------------------------------------------------------ run.toml


def run_toml(folder: Path) -> bytes:
    given = {"run_dir": folder, "clients": 3, "rounds": 40, "seed": 7, "method": "fedprox", "model": "mlp"}
    return to_toml(combine(given)).encode()


def refuse_all(folder: Path, damaged: Iterable[Damaged], trials: Trials) -> None:
    """Resume with a damaged run.toml: a usage error in one sentence, whatever the damage."""
    for what, content in damaged:
        (folder / "run.toml").write_bytes(content)
        with trials(f"run.toml, {what}"):
            with pytest.raises(UsageError) as raised:
                pytest.fail(f"taken as {combine({'run_dir': folder})}")
            assert "\n" not in str(raised.value)
            assert raised.value.exit_code == 2


@pytest.mark.promise("R3")
def test_any_damage_to_run_toml_is_refused(tmp_path: Path, trials: Trials) -> None:
    dice, content = random.Random(8), run_toml(tmp_path)
    refuse_all(tmp_path, damage.everything(content, len(content), 100, dice), trials)
    (tmp_path / "run.toml").write_bytes(content)
    assert to_toml(combine({"run_dir": tmp_path})).encode() == content


# ------------------------------------------------------------------------------ real processes

SHORT = ("--clients=2", "--rounds=6", "--seed=7", "--deadline=60", "--codec=topk:0.1")  # clients keep state


def cut_short(flock: Flock) -> None:
    """Leave a run whose server and clients were killed after some rounds."""
    server, client = flock.server(*SHORT), flock.client("c0,c1")
    server.wait_for("round_committed", count=3)
    server.kill()
    client.kill()


def refused(flock: Flock, code: int, *flags: str) -> str:
    """Start the server, which ends at once with that code and says why in one line."""
    server = flock.begin_server(*flags)
    assert server.ended() == code
    lines = [line for line in server.text.splitlines() if line.startswith("fl-server: error: ")]
    assert lines == [server.sentence()]
    return lines[0]


def finish(flock: Flock, *flags: str) -> str:
    server, client = flock.server(*flags), flock.client("c0,c1")
    assert [server.ended(), client.ended()] == [0, 0]
    return flock.sha256()


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_to_the_end(tmp_path_factory.mktemp("undamaged"), SHORT, ("c0,c1",))


@pytest.mark.promise("R3")
def test_what_a_run_is_stands_in_two_places(flock: Flock, undamaged: str) -> None:
    """A run.toml that is flipped, of another run, or lost: nothing is served that is not the run."""
    cut_short(flock)
    file = flock.run_dir / "run.toml"
    good = file.read_bytes()
    file.write_bytes(good.replace(b"seed = 7", b"seed = 5"))
    assert "is not as fl-server wrote it" in refused(flock, 2)
    file.write_text(to_toml(replace(from_toml_text(good, flock.folder), seed=5)))
    assert "is of another run, different in seed (7 there, 5 here)" in refused(flock, 2)
    file.unlink()
    assert "is of another run, different in " in refused(flock, 2)
    assert not file.exists()
    assert finish(flock, *SHORT) == undamaged


def from_toml_text(content: bytes, folder: Path) -> ServerConfig:
    (folder / "other.toml").write_bytes(content)
    return from_toml(folder / "other.toml")


@pytest.mark.promise("R3")
def test_a_damaged_journal_is_refused_and_touches_nothing(flock: Flock, undamaged: str) -> None:
    cut_short(flock)
    books = {name: flock.run_dir / name for name in (JOURNAL, LOG)}
    good = {name: path.read_bytes() for name, path in books.items()}
    ((digest,),) = flock.rows("SELECT model_digest FROM rounds WHERE round = 2")
    for damaged in (b"", good[LOG].replace(digest.encode(), digest[::-1].encode())):
        books[LOG].write_bytes(damaged)
        assert "restore a backup of the run directory" in refused(flock, 1)
        for name, path in books.items():
            path.write_bytes(good[name])
    assert finish(flock) == undamaged


@pytest.mark.promise("R3")
def test_a_journal_that_lost_its_newest_round_holds_it_again(flock: Flock, undamaged: str) -> None:
    """The clients live on, with the states after that round and maybe an update of the next one."""
    server, client = flock.server(*SHORT), flock.client("c0,c1")
    server.wait_for("round_committed", count=3)
    server.kill()
    ((number, digest),) = flock.rows(
        "SELECT round, model_digest FROM rounds WHERE committed ORDER BY round DESC LIMIT 1"
    )
    log = flock.run_dir / LOG
    content = log.read_bytes()
    log.write_bytes(damage.flipped(content, content.index(digest.encode()), random.Random(3))[1])
    again = flock.server()
    assert again.events("round_not_committed", round=number)
    assert [again.ended(), client.ended()] == [0, 0]
    assert flock.sha256() == undamaged
