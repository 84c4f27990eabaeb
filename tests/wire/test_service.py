"""The aggregator's service on a real port, spoken to in raw messages."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import os
import sqlite3
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from edgeflock.common.client_id import WORDS
from edgeflock.common.payload.checksum import GRANULE, extend
from edgeflock.common.payload.package import Package
from edgeflock.common.reason import Reason
from edgeflock.common.wire import transport
from edgeflock.common.wire.messages import run_from_wire
from edgeflock.common.wire.transport import PROTOCOL
from edgeflock.server.core.decisions import EndingKind
from edgeflock.server.core.phases import Phase
from edgeflock.server.engine.views import ClientView
from edgeflock.server.files.spool import Arrival
from edgeflock.server.service import sessions
from edgeflock.server.service.flow import Turns
from edgeflock.server.service.join import check_data
from edgeflock.server.service.sessions import CONTEST_S, TAKEOVERS, Contests
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import bundle_pb2
from support.tiny_run import Made, describe, update, with_number
from support.tiny_server import MIB, NAME, WAIT_S, Home, Peer, Served, serve

BIG = 700_000  # numbers: a delta of 2.8 MB, several chunks


def reason(answer: Any) -> str:
    """The reason of a refusal in any answer."""
    assert answer.HasField("refusal"), answer
    assert answer.refusal.sentence
    return pb.Reason.Name(answer.refusal.reason).removeprefix("REASON_")


# ------------------------------------------------------------------------------------------- Join


def test_a_client_is_told_the_run_when_it_joins(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        admission = (await served.peer().join()).admission
        assert len(admission.session) == 16
        assert admission.run.model.parameters.digest == served.home.layouts.parameters.digest

    serve(Home(tmp_path), talk)


def test_another_version_is_refused_and_both_are_named(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        answer = await served.peer().join(protocol=PROTOCOL + 6, software="9.9.9")
        assert reason(answer) == "VERSION"
        assert not answer.refusal.temporary
        for words in (f"revision {PROTOCOL + 6}", "9.9.9", f"speaks {PROTOCOL}", "edgeflock "):
            assert words in answer.refusal.sentence
        assert served.service.refusals.times["c0", Reason.VERSION] == 1
        await served.check_alive()

    serve(Home(tmp_path, rounds=1), talk)


@pytest.mark.parametrize(
    ("least", "newest", "spoken"),
    [(0, 1, 1), (1, 1, 1), (1, 2, 2), (2, 3, 2), (1, 9, 2), (3, 4, 0), (0, 3, 0)],
)
def test_the_newest_revision_that_both_speak_is_spoken(
    tmp_path: Path, least: int, newest: int, spoken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "PROTOCOL", 2)

    async def talk(served: Served) -> None:
        answer = await served.peer().join(protocol=newest, protocol_least=least)
        assert answer.admission.protocol == spoken
        if not spoken:
            theirs = "3 to 4" if least else "3"
            assert reason(answer) == "VERSION"
            assert f"you speak revision {theirs} of" in answer.refusal.sentence
            assert "this server speaks 1 to 2 (" in answer.refusal.sentence

    serve(Home(tmp_path), talk)


def test_a_client_one_revision_back_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PROTOCOL", 2)
    serve(Home(tmp_path, rounds=1), Served.check_alive)  # its clients offer what they know: revision 1
    home = Home(tmp_path)
    assert home.rows("SELECT count(*) FROM outcomes WHERE verdict = 'counted'") == [(3,)]


def test_where_digests_are_enough_no_tensor_is_named(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        whole, brief = [
            (await served.peer().join(digests=digests)).admission.run for digests in (False, True)
        ]
        for run in (whole, brief):
            found = run_from_wire(run).layouts
            assert [found.parameters.digest, found.buffers.digest, found.counters.digest] == [
                layout.digest
                for layout in (
                    served.home.layouts.parameters,
                    served.home.layouts.buffers,
                    served.home.layouts.counters,
                )
            ]
        assert len(whole.model.parameters.tensors) > len(brief.model.parameters.tensors) == 0

    serve(Home(tmp_path), talk)


def test_what_clients_of_versions_before_say_beside_is_passed_over(tmp_path: Path) -> None:
    """The run of the outbox, steps and bytes: the revision is the same, and nobody reads them."""
    run_id, steps = b"\x2a\x04run1", b"\x20\x07"  # JoinRequest.run_id, TrainCost.steps
    moved = b"\x40\x01\x48\x02\x50\x03"  # RoundCost.bytes_down, bytes_up, resent_bytes

    async def talk(served: Served) -> None:
        peers = [served.peer(f"c{seat}") for seat in range(3)]
        for peer in peers:
            request = pb.JoinRequest(protocol=PROTOCOL, client_id=peer.name, instance_id=peer.instance)
            answer = await peer.stub.Join(pb.JoinRequest.FromString(request.SerializeToString() + run_id))
            peer.session = answer.admission.session
            peer.watch()
        for peer in peers:
            await peer.ready()
        await served.run.open(1)
        for seat, peer in enumerate(peers):
            header = served.made(seat).header(peer.session, 1)
            header.cost.MergeFromString(steps)
            header.previous.MergeFromString(moved)
            upload = peer.upload()
            await upload.send(header=header)
            await upload.feed(served.made(seat).payload, (await upload.read()).credit, GRANULE, None)
        await served.run.committed(1)
        cost = pb.RoundCost.FromString(pb.RoundCost(round=1, wait_s=1.5).SerializeToString() + moved)
        assert not (await peers[0].report(cost=cost)).HasField("refusal")
        assert not served.service.refusals.times

    serve(Home(tmp_path, rounds=2), talk)


PATHS = ["../../x", "a/b", "a\0b", ".", "..", "..."]
BAD_IDS = ["", *PATHS, "ü", "a b", "a\n", "\x1b[31mred", "x" * 65, "y" * 10_240, "c0\u202e"]


def test_what_is_no_client_id_is_refused_and_reaches_no_path(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        for bad in BAD_IDS:
            answer = await served.peer().join(client_id=bad)
            assert reason(answer) == "BAD_CLIENT_ID", bad
            assert len(answer.refusal.sentence) <= 500
            assert answer.refusal.sentence.endswith(WORDS)
            assert answer.refusal.sentence.isprintable()
        assert served.service.refusals.times.total() == len(BAD_IDS)
        await served.check_alive()

    home = Home(tmp_path, rounds=1)
    before = {path.name for path in tmp_path.iterdir()}
    serve(home, talk)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_dots_in_an_id_are_no_path(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = [served.peer(name) for name in ("..c", ".c", "-")]
        for peer in peers:
            await peer.enter()
        for peer in peers:
            await peer.ready()
        await served.run.open(1)

    serve(Home(tmp_path), talk)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("size", [0, 15, 17, 10_000])
def test_an_instance_id_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    async def talk(served: Served) -> None:
        assert reason(await served.peer().join(instance_id=b"i" * size)) == "MALFORMED"

    serve(Home(tmp_path), talk)


def test_a_living_id_of_another_instance_is_refused(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        first, second = served.peer("c0", b"1" * 16), served.peer("c0", b"2" * 16)
        await first.enter()
        assert reason(await second.join()) == "DUPLICATE_ID"
        first.watching.cancel()
        await served.run.until(lambda: "c0" not in served.run.online)
        assert (await second.join()).HasField("admission")

    serve(Home(tmp_path), talk)


def test_the_same_instance_supersedes_its_half_open_session(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        first, second = served.peer("c0", b"1" * 16), served.peer("c0", b"1" * 16)
        await first.enter()
        await second.enter()
        assert reason(await first.answer()) == "SUPERSEDED"
        assert reason(await first.report(progress=pb.Progress())) == "UNKNOWN_SESSION"
        assert "c0" in served.run.online

    serve(Home(tmp_path), talk)


@pytest.mark.parametrize("lives", [(b"", b""), (b"a", b"b")], ids=["of before", "of today"])
def test_two_devices_of_one_image_are_both_refused_and_told_why(
    tmp_path: Path, lives: tuple[bytes, bytes]
) -> None:
    """Otherwise they take each other's session over for ever, and their updates count by turns."""

    async def talk(served: Served) -> None:
        devices = [served.peer("c0", b"1" * 16) for _ in range(2)]
        await devices[0].enter(life=lives[0])
        for time in range(1, 6):
            await devices[time % 2].enter(life=lives[time % 2])
        last, other = devices[1], devices[0]
        for device, life in ((other, lives[0]), (last, lives[1])):
            refusal = (await device.join(life=life)).refusal
            assert refusal.reason == pb.REASON_DUPLICATE_ID
            assert "one SD-card image" in refusal.sentence
            assert "another --id" in refusal.sentence
        assert reason(await last.answer()) == "SUPERSEDED"
        await served.run.until(lambda: "c0" not in served.run.online)
        await served.peer("c1", b"1" * 16).enter()

    serve(Home(tmp_path), talk)


def test_two_devices_of_one_image_are_told_of_the_end_all_the_same(tmp_path: Path) -> None:
    """Else the right one of them would be left behind, for it may come back only when the server has gone."""

    async def talk(served: Served) -> None:
        devices = [served.peer("c0", b"1" * 16) for _ in range(2)]
        lives = (b"a", b"b")
        for time in range(6):
            await devices[time % 2].enter(life=lives[time % 2])
        assert (await devices[0].join(life=lives[0])).HasField("refusal")
        await served.run.intake.stop("enough")
        await served.run.ended
        for device, life in zip(devices, lives, strict=True):
            await device.enter(life=life)
            assert device.last.ending.reason == "enough"

    serve(Home(tmp_path), talk)


def test_one_device_may_come_back_as_often_as_it_likes(tmp_path: Path) -> None:
    """Its link breaks time after time, and the server has not noticed yet."""

    async def talk(served: Served) -> None:
        for _ in range(20):
            await served.peer("c0", b"1" * 16).enter(life=b"a")

    serve(Home(tmp_path), talk)


def test_a_contest_is_over_when_nobody_takes_the_id_for_a_while() -> None:
    now = 0.0
    contests = Contests(lambda: now)
    for _ in range(40):  # started anew every 15 s, and its old connection is never noticed to be gone
        now += 15.0
        contests.take("slow")
        assert "slow" not in contests
    for _ in range(TAKEOVERS):
        assert "c" not in contests
        contests.take("c")
    assert "c" in contests
    now += CONTEST_S
    assert "c" not in contests
    contests.take("c")  # it is known by now what that means
    assert "c" in contests


def test_a_client_stays_online_when_its_older_stream_is_noticed_to_be_gone(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peer = served.peer()
        await peer.enter()
        half_open = peer.watching
        peer.watch()
        await peer.view(lambda view: True)
        half_open.cancel()
        other = served.peer("c1")
        await other.enter()  # an event behind the end of the stream
        session = served.run.sessions.by_id("c0")
        assert session is not None
        async with asyncio.timeout(WAIT_S):
            while session.watching > 1:
                await other.join()
                other.watch()
                await other.view(lambda view: True)
        assert "c0" in served.run.online

    serve(Home(tmp_path), talk)


def test_a_full_roster_takes_no_more(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        late = served.peer("late")
        await late.join()  # while there is room
        await served.gather()
        assert reason(await served.peer("later").join()) == "ROSTER_FULL"
        late.watch()
        assert reason(await late.answer()) == "ROSTER_FULL"
        assert (await served.peer("c1", b"c1".ljust(16, b"-")).join()).HasField("admission")

    serve(Home(tmp_path), talk)


def test_own_data_must_fit_the_run(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peer = served.peer()
        fits: dict[str, Any] = {"samples": 5, "input_shape": [1, 4], "highest_label": 2}
        wrong: list[dict[str, Any]] = [{"samples": 0}, {"input_shape": [5]}, {"highest_label": 3}]
        for change in wrong:
            assert reason(await peer.join(own_data=pb.OwnData(**{**fits, **change}))) == "WRONG_DATA"
        assert (await peer.join(own_data=pb.OwnData(**fits))).HasField("admission")

    serve(Home(tmp_path), talk)


def test_a_device_without_data_has_no_seat_in_a_run_of_own_data(tmp_path: Path) -> None:
    run = describe(Home(tmp_path).layouts, 3)
    refused = check_data(pb.JoinRequest(), replace(run, data=None))
    assert refused is not None
    assert refused.reason is Reason.WRONG_DATA
    assert "--data FILE" in refused.sentence


# ------------------------------------------------------------------------------------------ Watch


def test_every_opening_of_watch_starts_with_the_whole_view(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        for _ in range(3):
            peers[1].watch()
            view = await peers[1].view(lambda view: True)
            assert (view.round, view.seat.index, view.seat.seats) == (1, 1, 3)
            assert (view.state, view.task.round) == (pb.RUN_STATE_RUNNING, 1)
        await served.finish_round(peers)
        await served.run.open(2)
        peers[1].watch()
        view = await peers[1].view(lambda view: True)
        assert (view.round, view.task.round) == (2, 2)
        assert [(item.round, item.counted) for item in view.outcomes] == [(1, True)]

    serve(Home(tmp_path), talk)


def test_a_view_is_sent_when_there_is_news_in_it_and_not_at_every_wake_up(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        stream = peers[0].stub.Watch(pb.WatchRequest(session=peers[0].session), timeout=WAIT_S)
        first = (await stream.read()).view
        assert first.task.round == 1
        for seat in range(3):
            served.run.sessions.publish()
            await peers[seat].deliver(served.made(seat))
        second = (await stream.read()).view
        assert (second.round, second.HasField("task")) != (1, True)

    serve(Home(tmp_path), talk)


def test_who_has_no_task_hears_nothing_of_rounds_and_is_not_even_woken(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers, look, looks = await served.gather(), served.run.intake.view, list[str]()
        for peer in peers:  # all hear that the rounds begin
            await peer.view(lambda view: view.round == 1)

        def view(client_id: str, saves: str = "") -> ClientView:
            looks.append(client_id)
            return look(client_id, saves)

        served.run.intake.view = view  # type: ignore[method-assign]  # the service asks by that name
        members = list[int]()
        for number in (1, 2, 3):
            await served.run.open(number)
            members += served.run.cohort
            await peers[members[-1]].deliver(served.made(members[-1]))
            await served.run.committed(number)
        await peers[members[-1]].view(lambda view: bool(view.outcomes) and view.outcomes[-1].round == 3)
        concerned = {f"c{seat}" for seat in (*members, *served.run.cohort)}
        assert set(looks) <= concerned < {f"c{seat}" for seat in range(8)}
        assert len(looks) <= 2 * 4, "each round wakes who had a task and who gets one"

    serve(Home(tmp_path, cohort=1, clients=8, rounds=9), talk)


def test_a_roster_beyond_the_number_of_strangers_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_STRANGERS", 2)

    async def talk(served: Served) -> None:
        peers = [served.peer(f"c{seat}") for seat in range(12)]
        for peer in peers:  # all join before any watches
            await peer.join()
        for peer in peers:
            peer.watch()
        for peer in peers:
            await peer.ready()
        await served.run.open(1)

    serve(Home(tmp_path, clients=12), talk)


def test_of_a_small_model_so_many_copies_at_a_time_go_along_and_who_has_no_turn_fetches_it(
    tmp_path: Path,
) -> None:
    async def talk(served: Served) -> None:
        small = served.service._fetching.small = Turns(2, look_s=0.01, quick=1 << 40, free=0)
        peers = [served.peer(f"c{seat}") for seat in range(3)]
        for peer in peers:
            await peer.enter()
        async with small.one(1), small.one(1):  # both turns are somebody's
            for peer in peers:
                await peer.ready()
            tasks = [(await peer.view(lambda view: view.HasField("task"))).task for peer in peers]
            assert [one.payload for task in tasks for one in task.downloads] == [b""] * 3
        package = tasks[0].downloads[0].package
        answers = await peers[0].fetch(round=1, scope=pb.SCOPE_SHARED, digest=package.digest)
        payload = b"".join(answer.chunk.data for answer in answers)
        assert extend(0, payload) == package.crc32c
        peers[1].watch()
        task = (await peers[1].view(lambda view: view.HasField("task"))).task
        assert task.downloads[0].payload == payload, "there are turns again"
        assert 0 < task.remaining_ms <= 600_000

    serve(Home(tmp_path), talk)


class OneStream:
    """The server's side of a stream that keeps what it was given, or whose client is gone."""

    def __init__(self, *, gone: bool = False) -> None:
        self.wrote: list[Any] = []
        self.written = asyncio.Event()
        self._gone = gone

    async def write(self, message: Any) -> None:
        if self._gone:
            raise grpc.aio.InternalError("Failed grpc_call_start_batch")
        self.wrote.append(message)
        self.written.set()

    async def read(self) -> Any:
        await asyncio.sleep(0)
        return self.wrote.pop()


def test_nobody_holds_the_model_that_went_with_a_task(tmp_path: Path) -> None:
    """A stream that held its last message would be a copy of the model for every client."""

    async def talk(served: Served) -> None:
        (peer, *_), stream = await served.gather(), OneStream()
        request = pb.WatchRequest(session=peer.session)
        watching = asyncio.create_task(served.service.Watch(request, stream))  # type: ignore[arg-type]
        await stream.written.wait()
        for _ in range(5):  # now it waits for news
            await asyncio.sleep(0)
        references = sys.getrefcount(stream.wrote[0])
        assert references == 2, "that of the test, and the question's"
        assert pb.WatchResponse.FromString(stream.wrote[0]).view.task.downloads[0].payload
        watching.cancel()

    serve(Home(tmp_path), talk)


def test_a_stream_whose_client_is_gone_ends_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def talk(served: Served) -> None:
        (peer, *_), stream = await served.gather(), OneStream(gone=True)
        await served.service.Watch(pb.WatchRequest(session=peer.session), stream)  # type: ignore[arg-type]
        stream.wrote.append(pb.DeliverRequest(header=served.made(0).header(peer.session, 1)))
        delivery = served.service.Deliver(stream, stream)  # type: ignore[arg-type]
        await asyncio.create_task(delivery)
        assert served.service.pool.outstanding == 0
        await peer.view(lambda view: view.HasField("task"))
        await served.check_alive()

    serve(Home(tmp_path), talk)
    assert "Traceback" not in capfd.readouterr().err


def test_a_task_says_all_that_a_client_must_know(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        (peer, *_) = await served.gather()
        task = (await peer.view(lambda view: view.HasField("task"))).task
        assert (task.epochs, task.lr, task.batch_size, task.HasField("steps")) == (1, 0.1, 32, False)
        assert [upload.kind for upload in task.uploads] == [
            bundle_pb2.BUNDLE_KIND_DELTA, bundle_pb2.BUNDLE_KIND_BUFFERS, bundle_pb2.BUNDLE_KIND_COUNTERS
        ]  # fmt: skip
        assert task.upload_limit_bytes == len(served.made(0).payload)
        assert 0 < task.remaining_ms <= 600_000

    serve(Home(tmp_path), talk)


def test_the_last_two_outcomes_are_told_and_the_end(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        for number in (1, 2, 3):
            await served.run.open(number)
            await served.finish_round(peers)
        view = await peers[0].view(lambda view: view.HasField("ending"))
        assert (view.ending.kind, view.ending.reason) == (pb.ENDING_KIND_COMPLETED, "all 3 rounds are done")
        assert [(item.round, item.counted) for item in view.outcomes] == [(2, True), (3, True)]
        assert await peers[0].watching.read() is grpc.aio.EOF
        await served.run.ended

    serve(Home(tmp_path), talk)


# ------------------------------------------------------------------------------------------ Fetch


def test_the_model_comes_in_chunks_whose_checksums_run_on(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        (peer, *_) = await served.gather()
        task = (await peer.view(lambda view: view.HasField("task"))).task
        described = task.downloads[0].package
        for size, start in itertools.product((0, GRANULE, 3 * GRANULE, 4 * MIB), (0, GRANULE, 5 * GRANULE)):
            answers = await peer.fetch(
                round=1, scope=pb.SCOPE_SHARED, digest=described.digest, offset=start, chunk_bytes=size
            )
            position = start
            for answer in answers:
                assert answer.chunk.offset == position
                assert len(answer.chunk.data) <= (size or MIB)
                position += len(answer.chunk.data)
            assert (position, answers[-1].chunk.crc32c) == (described.size_bytes, described.crc32c)

    serve(Home(tmp_path, numbers=BIG), talk)


def test_a_small_model_comes_with_the_first_view_of_its_task_only(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        (download,) = (await peers[0].view(lambda view: view.HasField("task"))).task.downloads
        assert len(download.payload) == download.package.size_bytes
        assert extend(0, download.payload) == download.package.crc32c
        before = served.run.now.deadline
        served.run.overdue()
        await served.run.until(lambda: served.run.now.deadline not in (None, before))
        served.run.overdue()  # something changes in the view, the task stays
        view = await peers[0].view(lambda view: "0 of at least 3 updates" in view.reason)
        assert [item.payload for item in view.task.downloads] == [b""]
        assert view.task.downloads[0].package == download.package

    serve(Home(tmp_path), talk)


def test_a_large_model_does_not_come_with_its_task(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        (peer, *_) = await served.gather()
        view = await peer.view(lambda view: view.HasField("task"))
        assert [item.payload for item in view.task.downloads] == [b""]

    serve(Home(tmp_path, numbers=BIG), talk)


def test_a_fetch_without_a_digest_is_described_first(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        (peer, *_) = await served.gather()
        described, payload = await served.fetch_model(peer)
        first, *chunks = await peer.fetch(round=1, scope=pb.SCOPE_SHARED)
        assert first.package == described
        assert b"".join(answer.chunk.data for answer in chunks) == payload
        state = served.run.learner.state
        assert payload[8:-12] == state.model.numpy().tobytes()

    serve(Home(tmp_path), talk)


def test_what_is_not_there_cannot_be_fetched(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        good = {"round": 1, "scope": pb.SCOPE_SHARED}
        for change in (
            {"digest": b"x" * 16},
            {"digest": b"short"},
            {"scope": pb.SCOPE_PERSONAL},
            {"scope": pb.SCOPE_OPTIONAL},
            {"scope": pb.SCOPE_UNSPECIFIED},
            {"scope": 77},
            {"round": 0},
            {"round": 2},
            {"round": 2**64 - 1},
            {"offset": 1},
            {"chunk_bytes": 1},
            {"chunk_bytes": 5 * MIB},
            {"chunk_bytes": 2**32 - 1},
        ):
            (answer,) = await peers[0].fetch(**{**good, **change})
            assert reason(answer) == "NO_SUCH_PACKAGE", change
        assert served.service.refusals.times["c0", Reason.NO_SUCH_PACKAGE] == 13
        assert len(await peers[0].fetch(**good, offset=2**63)) == 1  # described, and no chunk beyond the end
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_who_is_not_in_the_cohort_fetches_nothing(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        (outside,) = {0, 1, 2} - set(served.run.cohort)
        (answer,) = await peers[outside].fetch(round=1, scope=pb.SCOPE_SHARED)
        assert reason(answer) == "NO_SUCH_PACKAGE"
        assert reason(await peers[outside].deliver(served.made(outside))) == "NO_SUCH_TASK"

    serve(Home(tmp_path, cohort=2), talk)


# ---------------------------------------------------------------------------------------- Deliver


async def at_the_first_chunk(served: Served, peer: Peer, made: Made) -> tuple[Any, pb.Credit]:
    upload = peer.upload()
    await upload.send(header=made.header(peer.session, 1))
    answer = await upload.read()
    assert answer.WhichOneof("message") == "credit", answer
    return upload, answer.credit


def test_a_round_of_updates_is_the_mean(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        start = served.run.learner.state.model.clone()
        deltas = [
            torch.frombuffer(bytearray(served.made(i).payload[:160]), dtype=torch.float32) for i in range(3)
        ]
        await served.finish_round(peers)
        expected = start + sum(deltas[1:], deltas[0]) / 3
        torch.testing.assert_close(served.run.learner.state.model, expected)

    serve(Home(tmp_path), talk)


def test_nothing_beyond_the_credit_is_taken(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        upload, credit = await at_the_first_chunk(served, peers[0], made)
        assert (credit.held, credit.limit, credit.chunk_bytes) == (0, GRANULE, MIB)
        data = made.payload[: GRANULE + 1]
        await upload.chunk(0, data, extend(0, data))
        answer = await upload.read()
        assert reason(answer) == "MALFORMED"
        assert "beyond your credit" in answer.refusal.sentence
        assert served.service.pool.outstanding == 0
        await served.finish_round(peers)
        assert served.service.pool.outstanding == 0

    serve(Home(tmp_path, numbers=BIG, credit_bytes=0), talk)


def test_an_upload_within_its_credit_gets_more_as_it_is_used(tmp_path: Path) -> None:
    """A budget of nothing leaves one small chunk at a time, and that is enough."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        answers = await asyncio.gather(*(peer.deliver(served.made(i)) for i, peer in enumerate(peers)))
        assert [answer.WhichOneof("message") for answer in answers] == ["received"] * 3
        await served.run.committed(1)

    serve(Home(tmp_path, numbers=BIG, credit_bytes=0), talk)


def _changed(
    made: Made, change: Callable[[bundle_pb2.Package], None]
) -> Callable[[bytes, int], pb.UpdateHeader]:
    """Return the header with something wrong in its package, whose digest is made right where it can be."""

    def header(session: bytes, round: int) -> pb.UpdateHeader:
        message = made.header(session, round)
        change(message.package)
        return message

    return header


def _sections(*order: int) -> Callable[[Made], Made]:
    def change(made: Made) -> Made:
        sections = tuple(made.package.sections[place] for place in order)
        return Made(Package(sections, made.package.scalars, made.package.crc32c), made.payload)

    return change


WRONG: dict[str, tuple[Callable[[Home], Made], str]] = {
    "a section too few": (lambda home: _sections(0, 1)(update(home.layouts, 0)), "MALFORMED"),
    "another order": (lambda home: _sections(1, 0, 2)(update(home.layouts, 0)), "MALFORMED"),
    "no section": (lambda home: _sections()(update(home.layouts, 0)), "MALFORMED"),
    "another layout": (lambda home: update(Home(home.run_dir, numbers=41).layouts, 0), "WRONG_LAYOUT"),
    "another codec": (lambda home: update(home.layouts, 0, codec="fp16"), "WRONG_CODEC"),
    "no loss": (lambda home: _without(home, "loss"), "MALFORMED"),
    "no samples": (lambda home: _without(home, "samples"), "MALFORMED"),
    "half a sample": (lambda home: update(home.layouts, 0, samples=0.5), "MALFORMED"),
    "negative samples": (lambda home: update(home.layouts, 0, samples=-1), "MALFORMED"),
    "samples of NaN": (lambda home: update(home.layouts, 0, samples=float("nan")), "MALFORMED"),
    "infinite samples": (lambda home: update(home.layouts, 0, samples=float("inf")), "MALFORMED"),
    "samples beyond an integer": (lambda home: update(home.layouts, 0, samples=1e300), "MALFORMED"),
    "steps beyond an integer": (
        lambda home: update(home.layouts, 0, scalars={"steps": 2.0**63}),
        "MALFORMED",
    ),
    "a loss beyond float32": (lambda home: update(home.layouts, 0, scalars={"loss": 1e308}), "MALFORMED"),
}


def _without(home: Home, name: str) -> Made:
    made = update(home.layouts, 0)
    scalars = {key: value for key, value in made.package.scalars.items() if key != name}
    return Made(Package(made.package.sections, scalars, made.package.crc32c), made.payload)


def test_an_update_that_is_not_what_the_task_asks_for_is_refused_by_its_header(tmp_path: Path) -> None:
    """Each with its own reason, before a byte of it is taken; the client may still deliver a good one."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        for name, (make, expected) in WRONG.items():
            answer = await peers[0].deliver(make(served.home))
            assert reason(answer) == expected, name
            assert not answer.refusal.temporary
        assert served.service.refusals.times["c0", Reason.WRONG_LAYOUT] == 1
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


MESSAGES: dict[str, Callable[[bundle_pb2.Package], Any]] = {
    "unknown kind": lambda package: package.sections[0].ClearField("kind"),
    "kind of the future": lambda package: setattr(package.sections[0], "kind", 99),
    "a kind twice": lambda package: package.sections.append(package.sections[0]),
    "unknown codec": lambda package: setattr(package.sections[0].codec, "codec", 99),
    "fraction": lambda package: setattr(package.sections[0].codec, "fraction", 0.5),
    "2^60 numbers": lambda package: setattr(package.sections[0], "elements", 2**60),
    "2^63 bytes": lambda package: setattr(package.sections[0], "size_bytes", 2**63),
    "sizes that do not add up": lambda package: setattr(package, "size_bytes", 1),
    "another digest": lambda package: setattr(package, "digest", b"x" * 16),
    "no digest": lambda package: package.ClearField("digest"),
    "a million scalars": lambda package: package.scalars.update({f"s{i}": 1.0 for i in range(100_000)}),
    "a scalar with a line end": lambda package: package.scalars.update({"a\nb": 1.0}),
    "many sections": lambda package: package.sections.extend([package.sections[0]] * 1000),
    "nothing": lambda package: package.Clear(),
}


def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        for name, change in MESSAGES.items():
            upload = peers[0].upload()
            await upload.send(header=_changed(served.made(0), change)(peers[0].session, 1))
            assert reason(await upload.read()) == "MALFORMED", name
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_more_bytes_than_the_task_allows_are_refused(tmp_path: Path) -> None:
    """A compressed bundle may have any size up to its bound, and nothing beyond."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        section = made.package.sections[0]
        header = made.header(peers[0].session, 1)
        header.package.sections[0].size_bytes = 10 * section.size_bytes
        upload = peers[0].upload()
        await upload.send(header=header)
        assert reason(await upload.read()) in ("TOO_LARGE", "MALFORMED")
        await served.finish_round(peers)

    serve(Home(tmp_path, codec="int8+zstd"), talk)


@pytest.mark.parametrize("flaw", ["checksum", "gap", "again", "flip"])
def test_bytes_that_are_not_those_announced_are_a_bad_transfer_and_start_again_at_0(
    tmp_path: Path, flaw: str
) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        upload, _ = await at_the_first_chunk(served, peers[0], made)
        first, second = made.payload[:100], made.payload[100:150]
        await upload.chunk(0, first, extend(0, first))
        running = extend(0, made.payload[:150])
        if flaw == "flip":  # the sums are right for bytes that are not the header's
            rest = bytes([made.payload[100] ^ 1]) + made.payload[101:]
            await upload.chunk(100, rest, extend(extend(0, first), rest))
        else:
            offset = {"checksum": 100, "gap": 101, "again": 0}[flaw]
            await upload.chunk(offset, second, running ^ (flaw == "checksum"))
        answer = await upload.read()
        assert reason(answer) == "BAD_TRANSFER"
        assert answer.refusal.temporary
        _, credit = await at_the_first_chunk(served, peers[0], made)
        assert credit.held == 0
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


@pytest.mark.parametrize("how", ["half-close", "header", "empty", "empty chunk"])
def test_a_stream_that_goes_astray_is_refused_and_keeps_what_it_brought(tmp_path: Path, how: str) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        upload, _ = await at_the_first_chunk(served, peers[0], made)
        await upload.chunk(0, made.payload[:50], extend(0, made.payload[:50]))
        match how:
            case "half-close":
                await upload.call.done_writing()
            case "header":
                await upload.send(header=made.header(peers[0].session, 1))
            case "empty":
                await upload.send()
            case _:
                await upload.chunk(50, b"", extend(0, made.payload[:50]))
        answer = await upload.read()
        assert reason(answer) == ("BUSY" if how == "half-close" else "MALFORMED")
        _, credit = await at_the_first_chunk(served, peers[0], made)
        assert credit.held == 50
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_a_stream_must_begin_with_a_header_of_a_known_session(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        empty = peers[0].upload()
        await empty.call.done_writing()
        assert reason(await empty.read()) == "MALFORMED"
        early = peers[0].upload()
        await early.chunk(0, b"x", 1)
        assert reason(await early.read()) == "MALFORMED"
        nothing = peers[0].upload()
        await nothing.send()
        assert reason(await nothing.read()) == "MALFORMED"
        for session in (b"", b"x" * 16, b"x" * 100_000):
            stranger = peers[0].upload()
            await stranger.send(header=served.made(0).header(session, 1))
            answer = await stranger.read()
            assert (reason(answer), answer.refusal.temporary) == ("UNKNOWN_SESSION", True)
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_an_update_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    """Several cuts, the last one before the last byte; small chunks are advised after a cut."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        size = len(made.payload)
        held = 0
        for cut in (GRANULE, 2 * GRANULE, size - 1):
            upload, credit = await at_the_first_chunk(served, peers[0], made)
            assert (credit.held, credit.chunk_bytes) == (held, GRANULE if held else MIB)
            await upload.feed(made.payload, credit, GRANULE, cut)
            async with asyncio.timeout(WAIT_S):
                while served.held(0) < cut:  # until the last chunk is in the spool
                    await peers[1].report(progress=pb.Progress())
            upload.call.cancel()
            held = cut
        answer = await peers[0].deliver(made)
        assert answer.WhichOneof("message") == "received"
        await served.finish_round(peers)
        cost = served.home.rows("SELECT bytes_up, resent_bytes FROM costs WHERE round = 1 AND seat = 0")
        assert cost == [(size, 0)]

    serve(Home(tmp_path, numbers=BIG), talk)


def test_a_newer_stream_of_the_same_client_ends_the_half_open_one(tmp_path: Path) -> None:
    """With the same session, and after joining again."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        first, _ = await at_the_first_chunk(served, peers[0], made)
        await first.chunk(0, made.payload[:40], extend(0, made.payload[:40]))
        second, _ = await at_the_first_chunk(served, peers[0], made)
        answer = await first.read()
        assert (reason(answer), answer.refusal.temporary) == ("BUSY", True)
        await peers[0].enter()
        answer = await peers[0].deliver(made)
        assert answer.WhichOneof("message") == "received"
        assert reason(await second.read()) == "BUSY"
        assert served.service.pool.outstanding == 0
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_an_update_is_taken_once_and_asked_for_as_often_as_one_likes(tmp_path: Path) -> None:
    """RECEIVED again while the round is open; the same outcome whenever it is settled, rounds later too."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        mades = [served.made(index) for index in range(3)]
        for _ in range(3):
            assert (await peers[0].deliver(mades[0])).WhichOneof("message") == "received"
        other = served.made(0, samples=11)
        assert reason(await peers[0].deliver(other)) == "LATE"
        for number in (1, 2, 3):
            await served.run.open(number)
            await served.finish_round(peers)
            for index, peer in enumerate(peers):
                outcome = (await peer.deliver(mades[index], round=1)).outcome
                assert (outcome.round, outcome.counted, outcome.digest) == (
                    1,
                    True,
                    mades[index].package.digest,
                )
            outcome = (await peers[0].deliver(other, round=1)).outcome
            assert (outcome.counted, outcome.reason) == (False, pb.REASON_LATE)
        counted = served.home.rows("SELECT count(*) FROM outcomes WHERE round = 1 AND verdict = 'counted'")
        assert counted == [(3,)]

    serve(Home(tmp_path), talk)


@pytest.mark.parametrize("round", [0, 2, 7, 2**63, 2**64 - 1])
def test_a_round_that_never_was_has_no_task_before_and_after_the_end(tmp_path: Path, round: int) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        assert reason(await peers[0].deliver(served.made(0), round=round)) == "NO_SUCH_TASK"
        await served.finish_round(peers)
        await served.run.ended
        assert reason(await peers[0].deliver(served.made(0), round=round)) == "NO_SUCH_TASK"

    serve(Home(tmp_path, rounds=1), talk)


def test_an_upload_that_the_deadline_overtakes_reaches_no_other_round(tmp_path: Path) -> None:
    """The round closes and the next one opens in mid-upload; what still comes is for neither of them."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        late = served.made(2)
        upload, _ = await at_the_first_chunk(served, peers[2], late)
        await upload.chunk(0, late.payload[:60], extend(0, late.payload[:60]))
        for index in (0, 1):
            await peers[index].deliver(served.made(index))
        served.run.overdue()
        await served.run.open(2)
        assert reason(answer := await upload.read()) == "BUSY"  # nobody waits for the rest
        assert answer.refusal.temporary
        outcome = (await peers[2].deliver(late, round=1)).outcome
        assert (outcome.counted, outcome.reason) == (False, pb.REASON_LATE)
        assert served.run.received == []
        await served.finish_round(peers)
        assert served.home.rows("SELECT round, seat FROM outcomes WHERE verdict = 'counted'") == [
            (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)
        ]  # fmt: skip

    serve(Home(tmp_path, min_updates=2), talk)


def test_a_member_that_an_extension_adds_delivers(tmp_path: Path) -> None:
    """Its place in the spool is made when it is first asked for."""

    async def talk(served: Served) -> None:
        peers = await served.gather()
        first, second = served.run.cohort
        (added,) = {0, 1, 2} - {first, second}
        await peers[first].deliver(served.made(first))
        served.run.overdue()
        await served.run.until(lambda: served.run.cohort == (0, 1, 2))
        assert (await peers[added].deliver(served.made(added))).WhichOneof("message") == "received"
        await served.run.committed(1)
        counted = served.home.rows("SELECT seat FROM outcomes WHERE verdict = 'counted' ORDER BY seat")
        assert counted == [(seat,) for seat in sorted((first, added))]

    serve(Home(tmp_path, cohort=2), talk)


def test_a_poisoned_update_is_named_and_the_others_count(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        await peers[1].deliver(with_number(served.made(1), 7, float("nan")))
        for index in (0, 2):
            await peers[index].deliver(served.made(index))
        await served.run.open(2)
        view = await peers[1].view(lambda view: view.round == 2)
        assert [(item.counted, item.reason) for item in view.outcomes] == [(False, pb.REASON_NON_FINITE)]
        (fields,) = served.home.rows("SELECT fields FROM events WHERE name = 'updates_rejected'")
        assert '"c1": "non_finite"' in fields[0]

    serve(Home(tmp_path, min_updates=2), talk)


def test_a_full_disk_in_mid_upload_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        upload, _ = await at_the_first_chunk(served, peers[0], made)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("edgeflock.server.files.spool._pwrite", full)
            await upload.chunk(0, made.payload, extend(0, made.payload))
            answer = await upload.read()
        assert (reason(answer), answer.refusal.temporary) == ("NO_SPACE", True)
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_a_server_that_goes_down_sends_clients_away_for_a_while(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        served.run.intake.drain()
        view = await peers[0].view(lambda view: view.state == pb.RUN_STATE_DRAINING)
        assert view.return_within_ms > 0
        assert not view.HasField("task")
        for answer in (await peers[0].deliver(served.made(0)), await served.peer("c1").join()):
            assert (reason(answer), answer.refusal.temporary) == ("DRAINING", True)
        assert await served.run.ended is None

    serve(Home(tmp_path), talk)


def test_a_restarted_server_goes_on_with_what_it_had_received(tmp_path: Path) -> None:
    """Half an update and a whole one survive; the result is that of a run without a break."""

    async def first(served: Served) -> None:
        peers = await served.gather()
        await peers[1].deliver(served.made(1))
        made = served.made(0)
        upload, credit = await at_the_first_chunk(served, peers[0], made)
        await upload.feed(made.payload, credit, 100, 100)
        async with asyncio.timeout(WAIT_S):
            while served.held(0) < 100:
                await peers[1].report(progress=pb.Progress())

    async def second(served: Served) -> None:
        peers = await served.gather()
        assert served.run.received == [1]
        _, credit = await at_the_first_chunk(served, peers[0], served.made(0))
        assert credit.held == 100
        await served.finish_round(peers)

    async def undisturbed(served: Served) -> None:
        await served.check_alive()

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    broken, whole = Home(tmp_path / "a", rounds=1), Home(tmp_path / "b", rounds=1)
    serve(broken, first)
    serve(broken, second)
    serve(whole, undisturbed)
    assert result(broken) == result(whole)


def test_what_a_server_of_the_version_before_had_received_is_delivered_once_more(tmp_path: Path) -> None:
    """It spooled headers as messages of the wire. RECEIVED was no promise: everybody has the update still and
    delivers it again, and the result is that of a run without a break."""

    async def first(served: Served) -> None:
        peers = await served.gather()
        for seat in (1, 2):
            await peers[seat].deliver(served.made(seat))
            headers[seat] = served.made(seat).header(b"", 1)

    async def second(served: Served) -> None:
        peers = await served.gather()
        assert not served.run.received
        await served.finish_round(peers)

    async def undisturbed(served: Served) -> None:
        await served.check_alive()

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    upgraded, whole = Home(tmp_path / "a", rounds=1), Home(tmp_path / "b", rounds=1)
    headers: dict[int, pb.UpdateHeader] = {}
    serve(upgraded, first)
    for seat, header in headers.items():
        as_before(upgraded.run_dir / "spool" / "000001" / f"{seat:06d}.log", header)
    serve(upgraded, second)
    serve(whole, undisturbed)
    assert result(upgraded) == result(whole)


def as_before(log: Path, header: pb.UpdateHeader) -> None:
    """Put that header before the marks of a spooled update, as versions before wrote it."""
    old, content = header.SerializeToString(deterministic=True), log.read_bytes()
    (size, _) = struct.unpack_from("<II", content)
    log.write_bytes(struct.pack("<II", len(old), extend(0, old)) + old + content[8 + size :])


def result(home: Home) -> str:
    path = home.run_dir / "rounds" / f"{home.rules.rounds:06d}" / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_order_of_arrival_gives_one_sha(tmp_path: Path) -> None:
    """All permutations of three clients over two rounds, and all at once."""
    found = set()
    for number, order in enumerate([*itertools.permutations(range(3)), None]):

        async def talk(served: Served, order: tuple[int, ...] | None = order) -> None:
            peers = await served.gather()
            for round in (1, 2):
                await served.run.open(round)
                if order is not None:
                    await served.finish_round(peers, list(order if round == 1 else order[::-1]))
                    continue
                await asyncio.gather(
                    *(peer.deliver(served.made(i), chunk=50) for i, peer in enumerate(peers))
                )
                await served.run.committed(round)
            await served.run.ended

        root = tmp_path / str(number)
        root.mkdir()
        home = Home(root, rounds=2)
        serve(home, talk)
        found.add(result(home))
    assert len(found) == 1


# ------------------------------------------------------------------------------- Report and Leave


def test_reports_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        stranger = served.peer("c0")
        await stranger.enter()
        digest = served.home.layouts.parameters.digest
        assert (
            reason(await stranger.report(ready=pb.Ready(layout_digest=digest))) == "MALFORMED"
        )  # no seat yet
        peers = await served.gather()
        assert reason(await peers[0].report()) == "MALFORMED"
        assert reason(await peers[0].report(ready=pb.Ready(layout_digest=b"x" * 16))) == "WRONG_LAYOUT"
        for counts in ([1, 1], [0] * 4, [2**63, 2**63, 10]):
            ready = pb.Ready(samples=10, layout_digest=digest, class_counts=counts)
            assert reason(await peers[0].report(ready=ready)) == "MALFORMED", counts
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_costs_of_a_round_reach_the_books_whatever_a_client_claims(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        header = made.header(peers[0].session, 1)
        header.cost.CopyFrom(
            pb.TrainCost(train_s=float("nan"), peak_rss_bytes=2**64 - 1, samples_done=2**64 - 1)
        )
        upload = peers[0].upload()
        await upload.send(header=header)
        await upload.feed(made.payload, (await upload.read()).credit, MIB, None)
        await served.finish_round(peers)
        for cost in (
            pb.RoundCost(round=1, wait_s=1.5, peak_rss_bytes=2**64 - 1, cpu_s=float("nan")),
            pb.RoundCost(round=2**64 - 1),
            pb.RoundCost(round=0),
        ):
            assert not (await peers[0].report(cost=cost)).HasField("refusal")
        await served.run.open(2)
        await served.finish_round(peers)
        found = served.home.rows(
            "SELECT round, wait_s, train_s, bytes_up FROM costs WHERE seat = 0 ORDER BY round"
        )
        assert found == [(1, 1.5, 0.0, len(made.payload)), (2, None, 0.0, len(made.payload))]

    serve(Home(tmp_path), talk)


def test_a_refused_task_does_not_hold_the_round_up(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        refusal = pb.Refusal(reason=pb.REASON_WRONG_LAYOUT, sentence="my model is another " + "x" * 5000)
        await peers[2].report(refused=pb.TaskRefused(round=1, refusal=refusal))
        for index in (0, 1):
            await peers[index].deliver(served.made(index))
        await served.run.committed(1)
        assert served.home.rows("SELECT verdict FROM outcomes WHERE seat = 2") == [("refused_by_client",)]

    serve(Home(tmp_path, min_updates=2), talk)


def test_who_leaves_is_offline_at_once(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peer = served.peer()
        await peer.enter()
        await peer.stub.Leave(pb.LeaveRequest(session=peer.session, reason="bye" * 1000), timeout=WAIT_S)
        assert "c0" not in served.run.online
        assert reason(await peer.report()) == "UNKNOWN_SESSION"
        await peer.stub.Leave(pb.LeaveRequest(session=b"?"), timeout=WAIT_S)

    serve(Home(tmp_path), talk)


# ---------------------------------------------------------------------------- garbage on every method

METHODS = ["Join", "Watch", "Fetch", "Deliver", "Report", "Leave"]
GARBAGE = [
    b"",
    b"\xff" * 40,
    b"\x0a\xff\xff\xff\xff\x7f",
    b"\x00" * 1000,
    bytes(range(256)) * 50,
    struct.pack("<d", 1),
]


async def throw(channel: Any, method: str, request: bytes) -> object:
    """Send raw bytes; return the answer's bytes or the status."""
    path = f"/{NAME}/{method}"
    try:
        if method in ("Join", "Report", "Leave"):
            return await channel.unary_unary(path)(request, timeout=WAIT_S)
        if method == "Deliver":
            both = channel.stream_stream(path)(timeout=WAIT_S)
            await both.write(request)
            await both.done_writing()
            return [answer async for answer in both]
        return [answer async for answer in channel.unary_stream(path)(request, timeout=WAIT_S)]
    except grpc.aio.AioRpcError as error:
        return error.code()


def test_garbage_on_every_method_leaves_the_server_standing(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        thrower = served.peer("x").channel
        for method in [*METHODS, "Nonsense"]:
            for request in GARBAGE:
                answered = await throw(thrower, method, request)
                assert answered not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), (
                    method
                )
        await served.check_alive()

    serve(Home(tmp_path, rounds=1), talk)


def test_garbage_in_mid_upload_is_a_refusal(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        header = pb.DeliverRequest(header=made.header(peers[0].session, 1)).SerializeToString()
        for garbage in GARBAGE:
            channel: Any = peers[0].channel
            call = channel.stream_stream(f"/{NAME}/Deliver")(timeout=WAIT_S)
            await call.write(header)
            await call.read()
            await call.write(garbage)
            answer = pb.DeliverResponse.FromString(await call.read())
            assert reason(answer) == "MALFORMED", garbage[:10]
        assert served.service.pool.outstanding == 0
        await served.finish_round(peers)

    serve(Home(tmp_path), talk)


def test_oversized_messages_on_every_method_leave_the_server_standing(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        huge = b"\x0a" + b"\x80\x80\x80\x03" + bytes(6 * MIB)  # one field of 6 MiB
        thrower = served.peer("x").channel
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}", options=options) as channel:
            for method in METHODS:
                assert await throw(channel, method, huge) is grpc.StatusCode.RESOURCE_EXHAUSTED, method
        assert await throw(thrower, "Leave", b"") == b""
        await served.check_alive()

    serve(Home(tmp_path, rounds=1), talk)


def test_strangers_bytes_on_the_port_leave_the_server_standing(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        for hello in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01" + bytes(100),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(hello)
            writer.write_eof()
            async with asyncio.timeout(WAIT_S):
                await reader.read()
            writer.close()
            await writer.wait_closed()
        await served.check_alive()

    serve(Home(tmp_path, rounds=1), talk)


def test_a_disk_that_fails_an_upload_ends_the_process_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "0.data")

    async def talk(served: Served) -> None:
        peers = await served.gather()
        monkeypatch.setattr(Arrival, "append", fail)
        refused = (await peers[0].deliver(served.made(0))).refusal
        assert (refused.reason, refused.temporary) == (pb.REASON_DRAINING, True)
        ending = await served.run.ended
        assert ending is not None
        assert (ending.kind, ending.reason) == (EndingKind.FAILED, "0.data: Input/output error")
        view = await peers[1].view(lambda view: view.state == pb.RUN_STATE_DRAINING)
        assert not view.HasField("ending")

    home = Home(tmp_path)
    serve(home, talk)
    assert home.rows("SELECT count(*) FROM meta WHERE name LIKE 'ended%'") == [(0,)]


def test_a_run_that_was_stopped_tells_what_became_of_the_open_round(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        await peers[0].deliver(made)
        await served.run.intake.stop("enough")
        view = await peers[0].view(lambda view: view.HasField("ending"))
        assert view.ending.kind == pb.ENDING_KIND_STOPPED
        assert [(item.counted, item.reason) for item in view.outcomes] == [(False, pb.REASON_DISCARDED)]
        assert served.run.now.phase is Phase.ENDED
        outcome = (await peers[0].deliver(made, round=1)).outcome
        assert outcome.reason == pb.REASON_DISCARDED

    home = Home(tmp_path)
    serve(home, talk)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        home.rows("DELETE FROM outcomes")
