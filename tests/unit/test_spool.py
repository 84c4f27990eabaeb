"""The spool: an update goes on where it was cut, and what a crash left is believed as far as it is good."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.common.errors import CorruptPayload
from edgeflock.common.payload.checksum import extend
from edgeflock.common.payload.description import Description
from edgeflock.common.payload.package import Package
from edgeflock.server.files.spool import Spool, SpoolEntry

PAYLOAD = bytes(range(256)) * 4
CHUNK = 128
HEADER = b"header of an update"
CHUNKS = len(PAYLOAD) // CHUNK


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def one(spool: Spool, round: int = 1, index: int = 0) -> SpoolEntry:
    return spool.prepare(round, [index], len(PAYLOAD))[index]


def send(
    entry: SpoolEntry, upto: int = len(PAYLOAD), payload: bytes = PAYLOAD, header: bytes = HEADER
) -> None:
    """Deliver from what is held on, in chunks."""
    arrival = entry.begin(header)
    running = extend(0, payload[: arrival.held])
    for offset in range(arrival.held, upto, CHUNK):
        data = payload[offset : min(offset + CHUNK, upto)]
        running = extend(running, data)
        arrival.append(offset, data, running, last=offset + len(data) == len(payload))


def content(entry: SpoolEntry) -> bytes:
    return Path(entry.data_path).read_bytes()[: entry.held]


def test_an_update_lies_in_its_file_as_it_came(spool: Spool) -> None:
    entry = one(spool)
    send(entry)
    assert (entry.held, entry.running, content(entry)) == (len(PAYLOAD), extend(0, PAYLOAD), PAYLOAD)


@pytest.mark.parametrize("cut", range(0, len(PAYLOAD) + 1, CHUNK))
def test_a_new_process_goes_on_at_every_cut(spool: Spool, cut: int) -> None:
    send(one(spool), cut)
    entry = one(spool)
    assert (entry.held, entry.header) == (cut, HEADER if cut else b"")
    send(entry)
    assert (content(entry), entry.running) == (PAYLOAD, extend(0, PAYLOAD))
    assert one(spool).held == len(PAYLOAD)


def test_an_update_without_a_payload_survives_the_process_by_its_header(spool: Spool) -> None:
    entry = one(spool)
    arrival = entry.begin(HEADER)
    assert one(spool).header == b""
    arrival.note()
    entry.finish()
    found = one(spool)
    assert (found.header, found.held, found.running) == (HEADER, 0, 0)
    found.retire()
    with pytest.raises(BlockingIOError, match="nobody waits"):
        found.arrival.note()


def test_every_torn_log_is_believed_up_to_its_last_whole_mark(spool: Spool) -> None:
    """Cut the log at every byte: what is left is a whole number of chunks, and can be continued."""
    entry = one(spool)
    send(entry)
    entry.retire()
    log = Path(entry.files.log).read_bytes()
    before = len(log) - (CHUNKS + 1) * 12  # behind the last mark stands that there is none
    for size in range(len(log)):
        Path(entry.files.log).write_bytes(log[:size])
        found = one(spool)
        marks = min(CHUNKS, max(0, size - before) // 12)
        assert found.held == marks * CHUNK, size
        assert found.header == (HEADER if size >= before else b"")
        send(found)
        assert content(found) == PAYLOAD
        found.retire()
        assert one(spool).held == len(PAYLOAD)


def test_every_flip_in_a_log_costs_chunks_and_never_believes_bad_ones(spool: Spool) -> None:
    entry = one(spool)
    send(entry)
    entry.retire()
    log = Path(entry.files.log).read_bytes()
    for position in range(len(log) - 12):
        Path(entry.files.log).write_bytes(
            log[:position] + bytes([log[position] ^ 0x10]) + log[position + 1 :]
        )
        found = one(spool)
        assert found.running == extend(0, PAYLOAD[: found.held]), position
        assert found.held < len(PAYLOAD)


@pytest.mark.parametrize("position", [0, 127, 128, 500, 1023])
def test_a_damaged_payload_is_believed_up_to_the_chunk_before(spool: Spool, position: int) -> None:
    entry = one(spool)
    send(entry)
    data = bytearray(PAYLOAD)
    data[position] ^= 1
    Path(entry.data_path).write_bytes(data)
    assert one(spool).held == position // CHUNK * CHUNK


@pytest.mark.parametrize("size", [0, 100, 128, 1000])
def test_a_payload_that_is_shorter_than_its_marks(spool: Spool, size: int) -> None:
    entry = one(spool)
    send(entry)
    os.truncate(entry.data_path, size)
    assert spool.scan(1, [0])[0].held == size // CHUNK * CHUNK


def test_a_mark_that_was_cut_by_a_full_disk_is_written_over(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next chunks are believed after a crash too."""
    entry = one(spool)
    send(entry, upto=100)
    whole = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) == 24:  # a mark, and that there is no other
            whole(descriptor, bytes(data)[:5], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            send(entry, upto=200)
    held = entry.held
    send(entry)
    again = one(spool)
    assert held < len(PAYLOAD)
    assert again.held == len(PAYLOAD)
    assert content(again) == PAYLOAD


def test_what_is_complete_is_not_forgotten(spool: Spool) -> None:
    """A second stream of the same client may come too late."""
    entry = one(spool)
    send(entry)
    entry.finish()
    entry.forget()
    assert (entry.complete, entry.held) == (True, len(PAYLOAD))


@pytest.mark.parametrize("upto", [128, 512])
def test_files_of_the_round_before_last_are_used_again_and_nothing_in_them_counts(
    spool: Spool, upto: int
) -> None:
    """Whoever had them: members change from round to round."""
    for seat, entry in spool.prepare(1, [0, 1], len(PAYLOAD)).items():
        send(entry, header=HEADER + b"%d" % seat)
    before = {Path(path).stat().st_ino for path in _files(spool, 1)}
    spool.prepare(2, [0, 1], len(PAYLOAD))
    entry = spool.prepare(3, [1, 2], len(PAYLOAD))[2]
    assert {Path(path).stat().st_ino for path in _files(spool, 3)} == before
    assert (entry.held, entry.header) == (0, b"")
    send(entry, upto, header=b"short")
    found = spool.scan(3, [2])[2]  # what is read of it after a crash
    assert (found.held, found.header) == (upto, b"short")


def _files(spool: Spool, round: int) -> list[Path]:
    return sorted((spool.root / f"{round:06d}").iterdir())


def test_another_update_starts_at_0(spool: Spool) -> None:
    """Both in one process and after a restart."""
    entry = one(spool)
    send(entry, 512)
    assert entry.begin(b"another").held == 0
    other = PAYLOAD[::-1]
    send(entry, 256, other, b"another")
    entry = one(spool)
    assert (entry.held, entry.header) == (256, b"another")
    assert entry.begin(HEADER).held == 0
    send(entry)
    assert content(entry) == PAYLOAD
    assert (one(spool).header, one(spool).held) == (HEADER, len(PAYLOAD))


@pytest.mark.parametrize(
    ("offset", "checksum"), [(0, 0), (256, 0), (128, 1), (2**64 - 1, 0)], ids=["again", "gap", "sum", "far"]
)
def test_a_chunk_that_does_not_continue_the_payload_is_refused(
    spool: Spool, offset: int, checksum: int
) -> None:
    entry = one(spool)
    send(entry, 128)
    with pytest.raises(CorruptPayload, match="does not continue the 128 bytes held"):
        entry.arrival.append(offset, PAYLOAD[128:256], extend(0, PAYLOAD[:256]) ^ checksum)
    send(entry)
    assert content(entry) == PAYLOAD


def test_what_is_held_is_described_unless_it_is_of_another_round(spool: Spool) -> None:
    """After a power cut a file may hold what it held two rounds before."""
    made = Description(1, Package((), {"steps": 0.0}), 10)
    entry = one(spool)
    assert entry.description(1) is None
    entry.begin(made.to_bytes())
    assert (entry.description(1), entry.description(3)) == (made, None)


def test_a_forgotten_update_starts_again_whatever_the_header(spool: Spool) -> None:
    entry = one(spool)
    send(entry, 512)
    entry.forget()
    assert entry.begin(HEADER).held == 0
    send(entry)
    assert content(one(spool)) == PAYLOAD


def test_a_retired_entry_takes_no_more(spool: Spool) -> None:
    """Its files may soon be those of another round."""
    entry = one(spool)
    send(entry, 128)
    entry.retire()
    with pytest.raises(BlockingIOError, match="nobody waits"):
        entry.arrival.append(128, PAYLOAD[128:256], extend(0, PAYLOAD[:256]))


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("end", [SpoolEntry.forget, SpoolEntry.retire])
def test_descriptors_are_given_back(spool: Spool, end: Callable[[SpoolEntry], None]) -> None:
    before = _open_descriptors()
    entries = spool.prepare(1, range(20), len(PAYLOAD))
    for entry in entries.values():
        send(entry, 256)
        end(entry)
        entry.arrival.release()
    assert _open_descriptors() == before
    assert not any(entry.arrival.unreleased for entry in entries.values() if end is SpoolEntry.retire)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_whole_update_gives_its_descriptors_back_by_itself(spool: Spool) -> None:
    before = _open_descriptors()
    send(one(spool))
    assert _open_descriptors() == before


# --------------------------------------------------------------------------------- a disk that stands still


class Stalled:
    """A write that does not return until it is let."""

    def __init__(self, patch: pytest.MonkeyPatch, entry: SpoolEntry) -> None:
        self.begun, self.go_on = Event(), Event()
        self._whole, self._threads = os.pwrite, ThreadPoolExecutor(2)
        patch.setattr(os, "pwrite", self._pwrite)
        held, arrival = entry.held, entry.arrival
        data = PAYLOAD[held : held + CHUNK]
        self.writing = self._threads.submit(arrival.append, held, data, extend(0, PAYLOAD[: held + CHUNK]))
        assert self.begun.wait(20)

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(20)
        return self._whole(descriptor, data, offset)

    def end(self) -> None:
        """Let it return."""
        self.go_on.set()
        self.writing.result(20)
        self._threads.shutdown()


def begun(spool: Spool) -> SpoolEntry:
    """Return an entry that holds two chunks."""
    entry = one(spool)
    send(entry, 2 * CHUNK)
    return entry


def test_nothing_that_is_decided_waits_for_a_write_that_stands_still(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = begun(spool)
    stalled = Stalled(monkeypatch, entry)
    assert entry.begin(HEADER).held == 2 * CHUNK
    entry.forget()
    assert entry.begin(b"another").held == 0
    entry.retire()
    entry.arrival.release()
    assert entry.arrival.being_written
    stalled.end()
    assert not entry.arrival.being_written


def test_what_was_written_for_nobody_counts_nowhere_and_spoils_no_later_update(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late bytes land in files that are nobody's."""
    entry = begun(spool)
    stalled = Stalled(monkeypatch, entry)
    send(entry, payload=PAYLOAD[::-1], header=b"another")
    stalled.end()
    assert (entry.held, entry.running, content(entry)) == (
        len(PAYLOAD),
        extend(0, PAYLOAD[::-1]),
        PAYLOAD[::-1],
    )
    assert (one(spool).header, one(spool).held) == (b"another", len(PAYLOAD))


def test_a_file_that_is_still_written_to_becomes_no_other_rounds(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = begun(spool)
    stalled, inode = Stalled(monkeypatch, entry), Path(entry.data_path).stat().st_ino
    entry.retire()
    one(spool, 2)
    later = one(spool, 3)
    send(later, payload=PAYLOAD[::-1])
    stalled.end()
    assert Path(later.data_path).stat().st_ino != inode
    assert content(later) == PAYLOAD[::-1]


def test_who_goes_on_while_the_last_write_stands_still_is_told_to_come_again(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same update, so what the late write brings is good; but nobody's thread waits for it."""
    monkeypatch.setattr("edgeflock.server.files.spool._OTHERS_S", 0.01)
    entry = begun(spool)
    stalled = Stalled(monkeypatch, entry)
    with pytest.raises(BlockingIOError, match="the disk has not taken what came before"):
        send(entry)
    stalled.end()
    assert entry.held == 3 * CHUNK
    send(entry)
    assert content(entry) == PAYLOAD


# --------------------------------------------------------------------------------- folders


def test_space_for_every_member_is_taken_when_the_round_opens(spool: Spool) -> None:
    entries = spool.prepare(1, [3, 5], 100_000)
    assert {Path(entry.data_path).stat().st_size for entry in entries.values()} == {100_000}
    assert all(Path(entry.data_path).stat().st_blocks * 512 >= 100_000 for entry in entries.values())


def test_a_full_disk_is_met_when_the_round_opens(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC from the reservation comes out, and the same call works when there is space."""
    real, calls = os.posix_fallocate, iter([False, True, False, False])

    def full(descriptor: int, offset: int, size: int) -> None:
        if next(calls):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left") as raised:
        spool.prepare(1, [0, 1], 4096)
    assert raised.value.errno == errno.ENOSPC
    assert set(spool.prepare(1, [0, 1], 4096)) == {0, 1}


def test_a_file_system_without_reservation_will_do(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    entry = one(spool)
    send(entry)
    assert content(entry) == PAYLOAD


def test_a_recycled_folder_holds_nothing_of_the_round_before_last(spool: Spool) -> None:
    """Files are used again, also under other indices; their old content is nobody's update."""
    old = spool.prepare(1, [0, 1, 2], len(PAYLOAD))
    for entry in old.values():
        send(entry)
        entry.retire()
    inodes = {Path(entry.data_path).stat().st_ino for entry in old.values()}
    spool.prepare(2, [0, 1], len(PAYLOAD))
    fresh = spool.prepare(3, [1, 7], len(PAYLOAD))
    assert {Path(entry.data_path).stat().st_ino for entry in fresh.values()} <= inodes
    assert [(entry.held, entry.header) for entry in fresh.values()] == [(0, b"")] * 2
    for entry in fresh.values():
        send(entry, payload=PAYLOAD[::-1], header=b"new")
        assert content(entry) == PAYLOAD[::-1]
    assert sorted(path.name for path in (spool.root / "000003").iterdir()) == [
        "000001.data", "000001.log", "000007.data", "000007.log"
    ]  # fmt: skip


def test_the_spool_of_the_round_before_stays_for_recovery(spool: Spool) -> None:
    send(one(spool, 1))
    for round in (2, 3, 4):
        assert spool.scan(round - 1, [0])[0].held == len(PAYLOAD)
        packages = Path(spool.packages(round))
        packages.mkdir(parents=True)
        send(one(spool, round))
    assert sorted(path.name for path in spool.root.iterdir()) == [
        "000003", "000003.packages", "000004", "000004.packages"
    ]  # fmt: skip


def test_a_folder_that_was_half_recycled_is_made_again(spool: Spool) -> None:
    send(one(spool, 1))
    one(spool, 2)
    (spool.root / "000001").rename(spool.root / ".new")
    entry = one(spool, 3)
    assert entry.held == 0
    assert not (spool.root / ".new").exists()


def test_looking_makes_nothing(spool: Spool) -> None:
    assert spool.scan(1, [0])[0].held == 0
    assert not spool.root.exists()


def test_a_cleared_spool_can_be_used_again(spool: Spool) -> None:
    send(one(spool))
    spool.clear()
    assert one(spool, 2).held == 0


# --------------------------------------------------------------------------------- any history


@given(steps=st.lists(st.tuples(st.sampled_from("sxoc"), st.integers(0, 8)), max_size=14))
@settings(deadline=None, max_examples=60)
def test_whatever_was_cut_and_restarted_the_payload_is_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Send some chunks (s), crash (x), send another update (o), tear the log (c): the end is always good."""
    root = tmp_path_factory.mktemp("spool")
    spool = Spool(root)
    entry = one(spool)
    for step, count in steps:
        if step == "s":
            send(entry, max(entry.held if entry.header == HEADER else 0, count * CHUNK))
        elif step == "o":
            send(entry, count * CHUNK, PAYLOAD[::-1], b"other" + struct.pack("<I", count))
        else:
            if step == "c" and Path(entry.files.log).exists():
                os.truncate(entry.files.log, max(0, Path(entry.files.log).stat().st_size - count))
            entry.retire()
            entry = one(spool)
        if entry.header == HEADER:
            assert content(entry) == PAYLOAD[: entry.held]
    send(entry)
    assert content(entry) == PAYLOAD
    entry.retire()
    shutil.rmtree(root)


def test_rounds_enter_no_name_of_theirs_in_the_interpreters_table(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []

    def intern(name: str) -> str:
        entered.append(name)
        return name

    monkeypatch.setattr(sys, "intern", intern)
    for round in range(1, 6):
        for entry in spool.prepare(round, (0, 1), 100).values():
            entry.arrival.note()
        spool.packages(round)
        spool.forget(round - 4)
    assert not [name for name in entered if name[0] in ".0123456789"]
