"""The store: a client's state moves only on COUNTED, keeps two generations, and is lost rather than wrong."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from structlog.testing import capture_logs

from edgeflock.client.keeping import statefile
from edgeflock.client.keeping.store import Store
from edgeflock.client.protocol import Generation
from edgeflock.common.errors import BadValue, CorruptState
from edgeflock.methods.kit.values import State

RUN = "a1b2"


def state(value: float, size: int = 1000) -> State:
    vectors = {"history": torch.full((size,), value), "counts": torch.arange(7, dtype=torch.int64)}
    return State(vectors, {"round": value, "mu": 0.1, "bad": float("nan")})


def stamp(round: int) -> Generation:
    return Generation(round, bytes([round % 256]) * 16)


def count_round(store: Store, round: int) -> None:
    store.stage(state(round), stamp(round))
    store.promote(stamp(round))


def value(store: Store) -> float | None:
    return store.load().scalars.get("round")


def test_a_new_client_has_an_empty_state(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    assert store.load() == State()
    assert store.generations() == ()


def test_a_candidate_is_not_the_state_before_it_is_promoted(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    assert store.stage(state(2), stamp(2))
    assert value(store) == value(Store(tmp_path, RUN)) == 1
    store.promote(stamp(2))
    assert value(store) == value(Store(tmp_path, RUN)) == 2


def test_a_discarded_candidate_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    store.stage(state(2), stamp(2))
    store.discard()
    store.promote(stamp(1))
    assert value(store) == 1


def test_what_was_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    vectors = {"a": torch.randn(777), "b": torch.randn(5, dtype=torch.float64), "none": torch.zeros(0)}
    store.stage(State(vectors, {"x": 1 / 3, "inf": float("inf")}), stamp(1))
    store.promote(stamp(1))
    found = store.load()
    assert found.scalars == {"x": 1 / 3, "inf": float("inf")}
    assert found.vectors.keys() == vectors.keys()
    assert all(torch.equal(found.vectors[name], vectors[name]) for name in vectors)


def test_the_safetensors_library_reads_the_files(tmp_path: Path) -> None:
    count_round(Store(tmp_path, RUN), 3)
    (file,) = tmp_path.rglob("state-*.safetensors")
    with safe_open(file, framework="pt") as opened:
        assert torch.equal(opened.get_tensor("history"), torch.full((1000,), 3.0))
        assert opened.metadata()["round"] == "3"


def test_two_generations_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    for round in range(1, 6):
        count_round(store, round)
    expected = (Generation(4, stamp(4).digest), Generation(5, stamp(5).digest))
    assert store.generations() == Store(tmp_path, RUN).generations() == expected
    assert len(list(tmp_path.rglob("*.safetensors"))) == 3  # two, and the file that the next candidate reuses


def test_going_back_makes_the_older_generation_the_state(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    count_round(store, 2)
    store.rewind(1)
    assert value(store) == value(Store(tmp_path, RUN)) == 1
    store.rewind(0)
    assert value(Store(tmp_path, RUN)) is None


def test_promoting_twice_is_promoting_once(tmp_path: Path) -> None:
    """A crash between the promotion and the emptying of the outbox makes the verdict come again."""
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    store.stage(state(2), stamp(2))
    store.promote(stamp(2))
    again = Store(tmp_path, RUN)
    assert again.staged(stamp(2))
    again.promote(stamp(2))
    assert [kept.round for kept in again.generations()] == [1, 2]


def test_a_method_that_keeps_nothing_writes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    assert not store.stage(State(), stamp(1))
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_a_round_without_a_step_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    store.stage(state(9), stamp(2))  # of an update that was lost before it was committed
    assert not store.stage(None, stamp(3))
    assert store.candidate is None
    assert value(store) == 1


def test_an_emptied_state_replaces_a_full_one(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    assert store.stage(State(), stamp(2))
    store.promote(stamp(2))
    assert store.load() == State()


def test_states_of_different_runs_do_not_meet(tmp_path: Path) -> None:
    count_round(Store(tmp_path, "run1"), 1)
    assert value(Store(tmp_path, "run2")) is None
    assert value(Store(tmp_path, "run1")) == 1


def test_runs_long_past_are_forgotten(tmp_path: Path) -> None:
    for number in range(9):
        Store(tmp_path, f"run{number}")
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert (tmp_path / "runs" / "run8").is_dir()


@pytest.mark.parametrize("ahead_s", [-1e9, 0, 1e9])
def test_the_run_at_hand_is_never_forgotten_whatever_the_clock_says(tmp_path: Path, ahead_s: float) -> None:
    """A device without a battery for its clock is back in the year of its image with every start."""
    for number in range(6):
        count_round(Store(tmp_path, f"run{number}"), 1)
    for folder in (tmp_path / "runs").iterdir():
        os.utime(folder, (0, time.time() + ahead_s * (folder.name != "run5")))
    for _ in range(3):
        assert value(Store(tmp_path, "run5")) == 1
    assert value(Store(tmp_path, "run3")) == 1  # it is the last one now
    count_round(Store(tmp_path, "run6"), 1)
    left = {folder.name for folder in (tmp_path / "runs").iterdir()}
    assert left == {"run4", "run5", "run3", "run6"}


@pytest.mark.parametrize("note", [b"", b"\xff\n\0", b"run1\nrun2\nrun3\nrun0"])
def test_a_torn_note_of_the_runs_costs_no_state_of_the_run_at_hand(tmp_path: Path, note: bytes) -> None:
    for number in range(5):
        count_round(Store(tmp_path, f"run{number}"), 1)
    (tmp_path / "runs.order").write_bytes(note)
    assert value(Store(tmp_path, "run4")) == 1
    assert value(Store(tmp_path, "run4")) == 1


def test_states_are_in_the_order_of_their_rounds_after_the_millionth(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    for round in (999_999, 1_000_000):
        count_round(store, round)
    again = Store(tmp_path, RUN)
    assert [kept.round for kept in again.generations()] == [999_999, 1_000_000]
    assert value(again) == 1_000_000


@pytest.mark.parametrize("run", ["", "..", "a/b", ".hidden", "a" * 65, "a\0", "ä"])
def test_a_run_id_from_the_wire_leaves_the_directory_never(tmp_path: Path, run: str) -> None:
    with pytest.raises(BadValue):
        Store(tmp_path, run)
    assert list(tmp_path.iterdir()) == []


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    """Never another state than the one that was written: lost with a line, or the same."""
    file = tmp_path / "state"
    statefile.write(file, state(1, size=20), stamp(1))
    good = file.read_bytes()
    for place in range(len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1 :])
        with pytest.raises(CorruptState):
            statefile.read(file)


def test_every_cut_is_found(tmp_path: Path) -> None:
    file = tmp_path / "state"
    statefile.write(file, state(1, size=20), stamp(1))
    good = file.read_bytes()
    for length in range(len(good)):
        file.write_bytes(good[:length])
        with pytest.raises(CorruptState):
            statefile.read(file)
        file.write_bytes(good + bytes(length + 1))
        with pytest.raises(CorruptState):
            statefile.read(file)


def test_a_corrupt_state_starts_as_on_first_participation(tmp_path: Path) -> None:
    """The older generation would be a wrong state, not a lost one."""
    store = Store(tmp_path, RUN)
    count_round(store, 1)
    count_round(store, 2)
    newest = sorted(tmp_path.rglob("state-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x00\x01")
    with capture_logs() as lines:
        assert store.load() == State()
    assert [line["event"] for line in lines] == ["state_lost"]
    assert store.generations() == Store(tmp_path, RUN).generations() == ()


def test_a_corrupt_header_is_found_when_the_store_is_opened(tmp_path: Path) -> None:
    count_round(Store(tmp_path, RUN), 1)
    (file,) = tmp_path.rglob("state-*")
    file.write_bytes(b"\xff" * 5)
    with capture_logs() as lines:
        store = Store(tmp_path, RUN)
        assert store.generations() == ()
        store.forget(stamp(1))  # as the server then says: that was said before
    assert [line["event"] for line in lines] == ["state_lost"]


def test_a_torn_candidate_is_not_taken_for_whole(tmp_path: Path) -> None:
    store = Store(tmp_path, RUN)
    store.stage(state(1), stamp(1))
    assert store.staged(stamp(1))
    assert not store.staged(stamp(2))
    (file,) = tmp_path.rglob("candidate*")
    file.write_bytes(file.read_bytes()[:-4])
    assert not Store(tmp_path, RUN).staged(stamp(1))


def test_only_the_candidate_of_the_update_that_counted_becomes_the_state(tmp_path: Path) -> None:
    """After a power cut its name may stand for what the file held before: the state of another round."""
    count_round(Store(tmp_path, RUN), 1)
    Store(tmp_path, RUN).stage(state(2), stamp(2))
    (candidate,) = tmp_path.rglob("candidate*")
    before = candidate.read_bytes()
    Store(tmp_path, RUN).stage(state(4), stamp(4))
    candidate.write_bytes(before)
    with capture_logs() as lines:
        store = Store(tmp_path, RUN)
        store.promote(stamp(4))
    assert store.load() == State()
    assert store.forgotten == stamp(4)
    assert [line["event"] for line in lines] == ["state_lost"]


def test_a_torn_candidate_never_becomes_the_state(tmp_path: Path) -> None:
    Store(tmp_path, RUN).stage(state(2), stamp(2))
    (candidate,) = tmp_path.rglob("candidate*")
    candidate.write_bytes(candidate.read_bytes()[:-1] + b"\x01")  # its header is whole
    with capture_logs() as lines:
        store = Store(tmp_path, RUN)
        store.promote(stamp(2))
        store.forget(stamp(2))
    assert store.generations() == ()
    assert [line["event"] for line in lines] == ["state_lost"]  # said once
