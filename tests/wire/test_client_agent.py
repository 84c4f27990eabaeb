"""The whole client against a rehearsal server: lost answers, dead sessions, vanished rounds, and the end."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
import torch
from structlog.testing import capture_logs

from edgeflock.client import participation
from edgeflock.client.agent import Agent, AgentRules, GaveUp
from edgeflock.client.config import ClientConfig
from edgeflock.client.deciding.backoff import Backoff
from edgeflock.client.keeping.outbox import Outbox
from edgeflock.client.keeping.store import Store
from edgeflock.client.link import account
from edgeflock.client.link.contact import Contact
from edgeflock.client.link.line import Line, Link
from edgeflock.client.link.trust import Trust
from edgeflock.client.protocol import Interrupted, Parcel, ServerRefused, View
from edgeflock.client.training.meter import Meter
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.errors import EdgeflockError, LayoutMismatch
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, CodecChoice, Kind, Package, Scope
from edgeflock.common.wire.address import parse_address
from edgeflock.common.wire.messages import (
    choice_to_wire,
    kind_to_wire,
    layout_to_wire,
    package_to_wire,
    run_from_wire,
)
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc
from support.processes import until
from support.rehearsal import Rehearsal, Script, serving

SHAPE, CLASSES = (1, 8, 8), 10


@pytest.fixture(autouse=True)
def _costs_are_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round's cost report is how these tests see that a client has settled it."""
    monkeypatch.setattr(account, "WITHIN_S", 0.02)


TOPK = CodecChoice("topk", fraction=0.1)


def model() -> FlatModel:
    return FlatModel(models.build("linear", input_shape=SHAPE, classes=CLASSES, seed=7))


def run_of(run_id: str = "run1", layout: Layout | None = None) -> pb.Run:
    spec = pb.ModelSpec(name="linear", input_shape=SHAPE, classes=CLASSES)
    spec.parameters.CopyFrom(layout_to_wire(layout or model().layout))
    data = pb.DataSpec(dataset="digits", partition="iid", seed=7, shards=4, samples_per_client=64)
    return pb.Run(run_id=run_id, epoch=1, seed=7, method="fedavg", model=spec, data=data, clients=4)


def rehearsal(script: Script | None = None, run: pb.Run | None = None) -> Rehearsal:
    return Rehearsal(script or Script(), *packed(model()), run or run_of())


def packed(flat: FlatModel) -> tuple[Package, bytes]:
    sent = pack({Kind.MODEL: (flat.params, flat.layout, IDENTITY)}, {}, lambda _: torch.Generator())
    return sent.package, b"".join(bytes(piece) for piece in sent.pieces)


def view(
    server: Rehearsal,
    task: int = 0,
    *outcomes: pb.Outcome,
    ending: str = "",
    steps: int = 3,
    codec: CodecChoice = IDENTITY,
    seat: int = 2,
) -> pb.View:
    """A view with a task of that round (0: none), the outcomes and the ending."""
    shown = pb.View(
        round=task, state=pb.RUN_STATE_RUNNING, seat=pb.Seat(index=seat, seats=4), outcomes=outcomes
    )
    if task:
        assert server.package is not None
        shown.task.CopyFrom(pb.Task(round=task, steps=steps, batch_size=16, lr=0.1))
        shown.task.downloads.add(scope=pb.SCOPE_SHARED, package=package_to_wire(server.package))
        digest = model().layout.digest
        shown.task.uploads.add(
            kind=kind_to_wire(Kind.DELTA), layout_digest=digest, codec=choice_to_wire(codec)
        )
    if ending:
        shown.state = pb.RUN_STATE_FINISHED
        shown.ending.CopyFrom(pb.Ending(kind=pb.ENDING_KIND_COMPLETED, reason=ending))
    return shown


def counted(round: int, digest: bytes) -> pb.Outcome:
    return pb.Outcome(round=round, digest=digest, counted=True)


@dataclass
class Stage:
    """A server, and the folder and switchboard of a client that is started and stopped."""

    server: Rehearsal
    target: str
    trainer: Trainer
    folder: Path

    def agent(self, name: str = "c2", *, stay: bool = False, give_up_after_s: float = 60.0) -> Agent:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        rules = AgentRules(b"i" * 16, stay, give_up_after_s, alone=True)
        return Agent(name, folder, Link(Trust(parse_address(self.target, "--server"))), self.trainer, rules)

    @asynccontextmanager
    async def living(self, name: str = "c2") -> AsyncIterator[asyncio.Task[str]]:
        """A client that lives beside the block, and is stopped like by SIGTERM at its end."""
        life = asyncio.create_task(self.agent(name).run())
        try:
            yield life
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    async def round(self, number: int, *, codec: CodecChoice = IDENTITY) -> bytes:
        """Ask for a round and return the digest of the update that is received."""
        before = len(self.server.received)
        await self.server.show(view(self.server, number, codec=codec))
        await self.server.until(lambda: len(self.server.received) > before)
        return self.server.received[-1]

    async def settle(self, number: int, digest: bytes, *, counted: bool = True) -> None:
        """Say the final word and wait until the client has moved by it."""
        before = len(self.server.said("cost"))
        outcome = pb.Outcome(round=number, digest=digest, counted=counted)
        await self.server.show(view(self.server, 0, outcome))
        await self.server.until(lambda: len(self.server.said("cost")) > before)


@asynccontextmanager
async def stage(folder: Path, server: Rehearsal | None = None, **more: object) -> AsyncIterator[Stage]:
    server = server or rehearsal()
    trainer = Trainer(ClientConfig(**more))  # type: ignore[arg-type]
    async with serving(server) as target:
        try:
            yield Stage(server, target, trainer, folder)
        finally:
            trainer.close()


def test_a_client_takes_part_from_join_to_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            server = on.server
            life = asyncio.create_task(on.agent().run())
            digests = []
            for number in (1, 2):
                digests.append(await on.round(number))
                await on.settle(number, digests[-1])
            await server.show(view(server, ending="all rounds are done"))
            assert await life == "all rounds are done"
            (ready,) = server.said("ready")
            assert (ready.ready.samples, sum(ready.ready.class_counts)) == (64, 64)
            told = [report.cost for report in server.said("cost")]
            assert [cost.round for cost in told] == [1, 2, 2]  # the last with the time to the end
            assert told[2].wait_s > told[1].wait_s
            assert dict(server.headers[0].package.scalars).keys() == {"samples", "steps", "loss"}
            assert [header.samples for header in server.headers] == [64, 64]
            assert server.leaves == ["all rounds are done"]
            assert digests[0] != digests[1]

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", [False, True], ids=["whole", "damaged"])
def test_a_model_that_comes_with_the_task_is_not_fetched_unless_it_is_damaged(
    tmp_path: Path, damage: bool
) -> None:
    async def update(folder: Path, *, inline: bool) -> tuple[bytes, int]:
        async with stage(folder) as on, on.living():
            shown = view(on.server, 1)
            if inline:
                payload = bytearray(on.server.payload)
                payload[7] ^= 0xFF if damage else 0
                shown.task.downloads[0].payload = bytes(payload)
            await on.server.show(shown)
            await on.server.until(lambda: len(on.server.received) == 1)
            return on.server.received[0], len(on.server.offsets)

    async def scenario() -> None:
        fetched, calls = await update(tmp_path / "fetched", inline=False)
        assert calls == 2  # a fetch and a delivery
        assert await update(tmp_path / "inline", inline=True) == (fetched, 2 if damage else 1)

    asyncio.run(scenario())


def test_the_same_seat_and_round_give_the_same_update_whoever_hosts_it(tmp_path: Path) -> None:
    """Two clients on one bench, one after the other, and each alone: the same digests."""

    async def update(folder: Path, name: str) -> bytes:
        async with stage(folder) as on, on.living(name):
            return await on.round(1)

    async def scenario() -> None:
        alone = await update(tmp_path / "1", "a")
        async with stage(tmp_path, parallel=2) as on, on.living("a"), on.living("b"):
            await on.server.show(view(on.server, 1))
            await on.server.until(lambda: len(on.server.headers) >= 2)
            assert {header.package.digest for header in on.server.headers} == {alone}

    asyncio.run(scenario())


def test_an_update_is_delivered_again_after_a_server_that_forgot_it_and_not_trained_again(
    tmp_path: Path,
) -> None:
    """The costs in the header are those of the first training, to the last bit."""

    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            await on.round(1)
            on.server.held.clear()
            await on.server.cut()
            await on.server.until(lambda: len(on.server.received) == 2)
            first, second = on.server.headers
            assert second.package == first.package
            assert second.cost == first.cost
            assert len(on.server.offsets) == 3  # one fetch, two deliveries
            await on.settle(1, on.server.received[-1])

    asyncio.run(scenario())


def test_an_update_survives_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            async with on.living():
                await on.round(1)
            on.server.held.clear()
            async with on.living():
                await on.server.until(lambda: len(on.server.received) == 2)
            assert on.server.headers[0].cost == on.server.headers[1].cost

    asyncio.run(scenario())


def test_a_lost_answer_is_asked_for_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path, rehearsal(Script(lose_answer=2))) as on, on.living():
            digest = await on.round(1)
            assert [header.package.digest for header in on.server.headers] == [digest] * 3
            await on.settle(1, digest)

    asyncio.run(scenario())


def test_a_verdict_that_comes_instead_of_received_is_final(tmp_path: Path) -> None:
    """The view at hand still names the task: it is not taken again."""

    async def scenario() -> None:
        server = rehearsal(Script(outcome=pb.Outcome(round=1, counted=False, reason=pb.REASON_LATE)))
        async with stage(tmp_path, server) as on, on.living():
            await server.show(view(server, 1))
            await server.until(lambda: len(server.said("cost")) == 1)
            server.script.outcome = None
            digest = await on.round(2)
            assert [header.round for header in server.headers] == [1, 2]
            await on.settle(2, digest)

    asyncio.run(scenario())


def test_the_last_costs_are_told_although_the_server_has_closed_the_watch(tmp_path: Path) -> None:
    """The end comes while the client still waits for its verdict; it is heard out on the same connection."""

    async def scenario() -> None:
        late = pb.Outcome(round=1, counted=False, reason=pb.REASON_LATE)
        server = rehearsal(Script(outcome=late, after_the_end=True))
        async with stage(tmp_path, server) as on, on.living() as life:
            await server.show(view(server, 1))
            await server.until(lambda: len(server.headers) == 1)
            await server.show(view(server, ending="enough"))
            assert await life == "enough"
            assert {report.cost.round for report in server.said("cost")} == {1}
            assert (len(server.joins), server.leaves) == (1, ["enough"])

    asyncio.run(scenario())


def test_costs_that_were_not_taken_are_told_again_on_the_next_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            server = on.server
            digest = await on.round(1)
            gone = pb.Refusal(reason=pb.REASON_UNKNOWN_SESSION, sentence="join again", temporary=True)
            server.report_refusals.append(gone)
            await on.settle(1, digest)
            await server.cut()
            await server.until(lambda: len(server.said("cost")) == 2)
            first, again = [report.cost for report in server.said("cost")]
            assert first == again

    asyncio.run(scenario())


def test_no_task_is_taken_while_an_update_is_unsettled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            server = on.server
            digest = await on.round(1)
            fetches = len(server.offsets) - len(server.headers)
            await server.show(view(server, 2))
            await server.cut()  # the client asks again for the verdict of round 1, and only that
            await server.until(lambda: len(server.received) >= 2)
            assert {header.round for header in server.headers} == {1}
            assert len(server.offsets) - len(server.headers) == fetches
            await server.show(view(server, 2, counted(1, digest)))
            await server.until(lambda: server.headers[-1].round == 2)

    asyncio.run(scenario())


def test_state_moves_only_when_the_update_counts(tmp_path: Path) -> None:
    """Top-k's residual is client state: kept on COUNTED, dropped on NOT_COUNTED."""

    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            lost = await on.round(1, codec=TOPK)
            await on.settle(1, lost, counted=False)
            assert Store(tmp_path / "c2", "run1").generations() == ()
            kept = await on.round(2, codec=TOPK)
            await on.settle(2, kept)
            store = Store(tmp_path / "c2", "run1")
            assert [(kept.round, kept.digest) for kept in store.generations()] == [(2, kept)]
            (residual,) = store.load().vectors.values()
            assert 0 < int((residual == 0).sum()) < residual.numel()

    asyncio.run(scenario())


def test_the_residual_is_sent_with_the_next_update(tmp_path: Path) -> None:
    """The same round on an empty and on a kept residual gives different updates."""

    async def scenario(folder: Path, first: bool) -> bytes:
        async with stage(folder) as on, on.living():
            if first:
                await on.settle(1, await on.round(1, codec=TOPK))
            return await on.round(2, codec=TOPK)

    assert asyncio.run(scenario(tmp_path / "1", True)) != asyncio.run(scenario(tmp_path / "2", False))


def test_a_round_of_no_steps_sends_zero_and_keeps_the_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            await on.settle(1, await on.round(1, codec=TOPK))
            await on.server.show(view(on.server, 2, steps=0))
            await on.server.until(lambda: len(on.server.received) == 2)
            assert not any(on.server.held)
            assert dict(on.server.headers[-1].package.scalars) == {"samples": 64, "steps": 0, "loss": 0}
            await on.settle(2, on.server.received[-1])
            assert [kept.round for kept in Store(tmp_path / "c2", "run1").generations()] == [1]

    asyncio.run(scenario())


def test_a_closing_task_is_answered_with_numbers_alone_and_changes_no_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            digest = await on.round(1, codec=TOPK)
            await on.settle(1, digest)
            kept = (tmp_path / "c2" / "runs" / "run1" / "state-000001.safetensors").read_bytes()
            shown = view(on.server, 2, counted(1, digest), steps=0)
            shown.task.closing = True
            shown.task.ClearField("uploads")
            shown.task.scores.extend(["client_local", "client_pooled"])
            await on.server.show(shown)
            await on.server.until(lambda: len(on.server.received) == 2)
            await on.settle(2, on.server.received[-1])
            header = on.server.headers[-1]
            assert (header.round, header.package.size_bytes, len(header.package.sections)) == (2, 0, 0)
            assert dict(header.package.scalars) == {"samples": 64.0, "steps": 0.0, "loss": 0.0}
            assert [score.model for score in header.scores] == ["client_local", "client_pooled"]
            store = Store(tmp_path / "c2", "run1")
            assert [kept.round for kept in store.generations()] == [1]
            assert (tmp_path / "c2" / "runs" / "run1" / "state-000001.safetensors").read_bytes() == kept
            await on.round(3)  # it goes on as if nothing had been

    asyncio.run(scenario())


def test_scores_go_with_every_delivery_and_are_no_part_of_the_digest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path / "plain") as on, on.living():
            plain = await on.round(1)
        async with stage(tmp_path / "tested") as on:
            on.server.script.lose_answer = 1
            async with on.living():
                shown = view(on.server, 1)
                shown.task.scores.append("client_local")
                await on.server.show(shown)
                await on.server.until(lambda: len(on.server.received) == 1)
            assert on.server.received == [plain]
            assert len(on.server.headers) > 1
            told = [[(score.samples, score.hits) for score in header.scores] for header in on.server.headers]
            assert all(scores == told[0] and len(scores) == 1 for scores in told)
            outbox = Outbox(tmp_path / "tested" / "c2")
            assert outbox.entry is not None
            assert [(score.samples, score.hits) for score in outbox.entry.description.scores] == told[0]

    asyncio.run(scenario())


def test_an_outbox_of_another_run_is_discarded_with_a_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            await on.round(1)
        with capture_logs() as lines:
            async with stage(tmp_path, rehearsal(run=run_of("run2"))) as on, on.living():
                await on.round(1)
        assert [line["round"] for line in lines if line["event"] == "outbox_discarded"] == [1]

    asyncio.run(scenario())


def test_training_stops_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            await on.server.show(view(on.server, 1, steps=10**9))
            await on.server.until(lambda: len(on.server.offsets) == 1)
            digest = await on.round(2)
            assert [header.round for header in on.server.headers] == [2]
            await on.settle(2, digest)

    asyncio.run(scenario())


def test_a_fetch_ends_with_its_round(tmp_path: Path) -> None:
    """A client behind a slow link would spend its bytes on what nobody waits for."""

    class Stalled(Rehearsal):
        stalls, left = True, False

        async def Fetch(self, request: pb.FetchRequest, context: Any) -> AsyncIterator[pb.FetchResponse]:  # noqa: N802
            try:
                async for answer in super().Fetch(request, context):
                    yield answer
                    if self.stalls:
                        await self.nudge()
                        await asyncio.Event().wait()
            finally:
                self.left = True
                await self.nudge()

    async def scenario() -> None:
        server = Stalled(Script(chunk=64), *packed(model()), run_of())
        async with stage(tmp_path, server) as on, on.living():
            await server.show(view(server, 1))
            await server.until(lambda: bool(server.sizes and server.sizes[0]))
            server.stalls = False
            await server.show(view(server))
            await server.until(lambda: server.left)
            await on.round(2)
            assert [header.round for header in server.headers] == [2]

    asyncio.run(scenario())


def test_steps_and_seconds_are_told_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participation, "PROGRESS_EVERY_S", 0.01)

    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            await on.server.show(view(on.server, 1, steps=10**9))
            await on.server.until(lambda: len(on.server.said("progress")) > 10)
            first, *_, last = (report.progress for report in on.server.said("progress"))
            assert (first.round, first.steps_total) == (1, 10**9)
            assert first.steps_done < last.steps_done
            assert 0 < first.cpu_s < last.cpu_s
            await on.server.show(view(on.server))

    asyncio.run(scenario())


def test_a_server_that_came_back_from_an_older_state_takes_the_client_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            server = on.server
            async with on.living():
                first = await on.round(1, codec=TOPK)
                await on.settle(1, first)
                await on.settle(2, await on.round(2, codec=TOPK))
                server.run.epoch = 2
                server.view = view(server, 0, counted(1, first))
                await server.cut()
                await server.until(lambda: len(server.said("ready")) == 2)
                await on.round(2, codec=TOPK)
            assert [kept.round for kept in Store(tmp_path / "c2", "run1").generations()] == [1]
            assert server.headers[-1].package.digest == server.headers[-2].package.digest

    asyncio.run(scenario())


def test_a_state_that_is_not_the_one_after_what_counted_is_forgotten_with_a_word(tmp_path: Path) -> None:
    """A copy of the directory that was put back, a clone, a torn outbox: whatever made it another one."""

    async def second(folder: Path, standing: pb.Standing | None, *, first: bool = True) -> bytes:
        async with stage(folder) as on, on.living():
            if first:
                await on.settle(1, await on.round(1, codec=TOPK))
            shown = view(on.server, 2, codec=TOPK)
            shown.standing.CopyFrom(standing or pb.Standing(round=1, digest=on.server.received[-1]))
            await on.server.show(shown)
            await on.server.until(lambda: bool(on.server.headers) and on.server.headers[-1].round == 2)
            return on.server.headers[-1].package.digest

    def told(
        name: str, standing: pb.Standing | None = None, *, first: bool = True
    ) -> tuple[bytes, list[str]]:
        with capture_logs() as lines:
            digest = asyncio.run(second(tmp_path / name, standing, first=first))
        events = [line["event"] for line in lines]
        return digest, [event for event in events if event in ("state_lost", "state_went_back")]

    fresh, said = told("fresh", pb.Standing(), first=False)
    assert said == []
    kept, said = told("kept")
    assert (kept != fresh, said) == (True, [])
    other = pb.Standing(round=1, digest=b"o" * 16)
    assert told("other", other) == (fresh, ["state_lost"])
    assert told("missing", other, first=False) == (fresh, ["state_lost"])
    assert told("ahead", pb.Standing()) == (fresh, ["state_went_back"])


def test_an_update_of_a_round_that_is_held_anew_from_another_model_is_trained_again(tmp_path: Path) -> None:
    """The server was restored from a backup while the device was away: its update is of another history."""

    async def scenario() -> None:
        async with stage(tmp_path) as on:
            server = on.server
            async with on.living():
                first = await on.round(1)
            assert server.package is not None
            assert server.headers[-1].made_from == server.package.digest
            flat = model()
            flat.params.add_(1.0)
            server.package, server.payload = packed(flat)
            server.view = view(server, 1)
            async with on.living():
                await server.until(lambda: server.received[-1] != first)
            assert [header.package.digest for header in server.headers].count(first) == 1
            assert server.headers[-1].made_from == server.package.digest

    asyncio.run(scenario())


def test_an_update_that_is_early_is_not_offered_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was restored from a backup and has not come as far; a view tells when it has."""
    waited: list[float] = []

    class Patience(Backoff):
        def next_s(self, *, retry_after_ms: int = 0, return_within_ms: int = 0) -> float:
            if self.most_s != 60.0:
                return super().next_s(retry_after_ms=retry_after_ms, return_within_ms=return_within_ms)
            waited.append(min(self.most_s, self.first_s * 2.0**self.attempts))
            self.attempts += 1
            return 0.01 if len(waited) < 9 else 1000.0

    monkeypatch.setattr(participation, "Backoff", Patience)

    async def scenario() -> None:
        async with stage(tmp_path) as on:
            server = on.server
            async with on.living():
                digest = await on.round(9)
            early = pb.Refusal(reason=pb.REASON_NO_SUCH_TASK, sentence="round 9 is not open")
            server.script.refusals = [early] * 1000
            server.view = view(server)
            server.view.round = 5
            async with on.living():
                await server.until(lambda: len(server.headers) == 10)
                server.script.refusals = []
                await server.show(view(server, 9))
                await server.until(lambda: len(server.received) == 2)
                await on.settle(9, digest)

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert waited[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [line["round"] for line in lines if line["event"] == "update_waits"] == [9]


# ------------------------------------------------------------------------------------------------ how it ends


def ended(folder: Path, server: Rehearsal, **more: float) -> BaseException | str:
    async def scenario() -> BaseException | str:
        async with stage(folder, server) as on, asyncio.timeout(20):
            (end,) = await asyncio.gather(on.agent(**more).run(), return_exceptions=True)  # type: ignore[arg-type]
            return end

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    "reason", [pb.REASON_VERSION, pb.REASON_DUPLICATE_ID, pb.REASON_ROSTER_FULL, pb.REASON_WRONG_DATA]
)
def test_a_final_refusal_ends_the_client_with_its_sentence(
    tmp_path: Path, reason: pb.Reason.ValueType
) -> None:
    server = rehearsal()
    server.join_refusals = [pb.Refusal(reason=reason, sentence="that cannot be")]
    end = ended(tmp_path, server)
    assert isinstance(end, ServerRefused)
    assert (str(end), end.exit_code) == ("that cannot be", 1)


@pytest.mark.parametrize("reason", [pb.REASON_DUPLICATE_ID, pb.REASON_ROSTER_FULL])
def test_a_client_that_had_a_seat_waits_until_the_strangers_behind_its_servers_address_are_gone(
    tmp_path: Path, reason: pb.Reason.ValueType
) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            await on.round(1)
            stranger = pb.Refusal(reason=reason, sentence="another lives here")
            on.server.join_refusals = [stranger, stranger]
            await on.server.cut()
            await on.server.until(lambda: len(on.server.joins) == 4)
            await on.settle(1, on.server.received[-1])
            await on.round(2)
            assert len(on.server.received) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "run",
    [
        run_of("elsewhere", layout=Layout.single("head.weight", 10, 65)),
        pb.Run(run_id="elsewhere", method="fedavg", model=pb.ModelSpec(name="custom", input_shape=SHAPE)),
        pb.Run(run_id="elsewhere", method="of tomorrow", model=run_of().model, data=run_of().data),
        pb.Run(run_id="elsewhere", model=pb.ModelSpec(parameters=pb.Run().model.parameters)),
    ],
    ids=["another layout", "a model of their own", "an unknown method", "nonsense"],
)
@pytest.mark.parametrize("stay", [False, True])
def test_a_strangers_run_that_is_not_for_this_client_is_waited_out_with_one_line(
    tmp_path: Path, run: pb.Run, stay: bool
) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            life = asyncio.create_task(on.agent(stay=stay).run())
            await on.round(1)
            mine, on.server.run = on.server.run, run
            await on.server.cut()
            with capture_logs() as lines:
                await on.server.until(lambda: len(on.server.joins) == 4 or life.done())
            assert sum(line.get("met", False) for line in lines) == 1
            on.server.run = mine
            await on.settle(1, on.server.received[-1])
            await on.round(2)
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    asyncio.run(scenario())


def test_what_a_run_needs_and_the_client_lacks_ends_it_at_first_contact(tmp_path: Path) -> None:
    run = run_of()
    run.data.dataset = "of tomorrow"
    server = rehearsal(run=run)
    server.view = view(server)
    end = ended(tmp_path, server)
    assert isinstance(end, EdgeflockError)
    assert (end.exit_code, "of tomorrow" in str(end)) == (2, True)


def test_with_stay_the_first_contact_is_waited_out_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            on.server.join_refusals = [pb.Refusal(reason=pb.REASON_WRONG_DATA, sentence="no")] * 2
            life = asyncio.create_task(on.agent(stay=True).run())
            await on.round(1)
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    asyncio.run(scenario())


def test_a_run_has_its_place_as_long_as_a_client_of_the_process_is_in_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            mine = await on.trainer.setup(run_from_wire(run_of("mine")))
            other = await on.trainer.setup(run_from_wire(run_of("other")))
            for wanted in (mine, other, mine):
                async with on.trainer.bench(wanted):
                    assert await on.trainer.setup(run_from_wire(run_of(wanted.run_id))) is wanted
            gone = weakref.ref(other)
            del other, wanted  # the thread that made it may be about to let go of it
            until(lambda: True if gone() is None else None, lambda: "a run that is forgotten")

    asyncio.run(scenario())


# ------------------------------------------------------------------------- bytes that are no message


@asynccontextmanager
async def garbled(folder: Path, **wrong: int) -> AsyncIterator[Stage]:
    """A stage whose server answers so many calls with bytes that are no message."""
    made = rehearsal()
    made.view = view(made, ending="done")
    left = Counter(wrong)

    class Wrong(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            name = handler_call_details.method.rpartition("/")[2]
            if left[name] <= 0:
                return None
            left[name] -= 1
            return {
                "Join": grpc.unary_unary_rpc_method_handler(answer),
                "Watch": grpc.unary_stream_rpc_method_handler(answers),
            }[name]

    async def answer(_: bytes, __: object) -> bytes:
        return b"\xff\xff"

    async def answers(_: bytes, __: object) -> AsyncIterator[bytes]:
        yield b"\xff\xff"
        await asyncio.Event().wait()

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Wrong(),))
    rpc.add_AggregatorServicer_to_server(made, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    trainer = Trainer(ClientConfig())
    try:
        yield Stage(made, f"127.0.0.1:{port}", trainer, folder)
    finally:
        trainer.close()
        await server.stop(None)


def test_a_message_of_the_watch_that_is_none_breaks_the_line_and_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with garbled(tmp_path, Watch=2) as on, asyncio.timeout(20):
            assert await on.agent().run() == "done"
            assert len(on.server.joins) == 3

    asyncio.run(scenario())


def test_a_join_may_take_as_long_as_the_largest_layout_takes_on_a_slow_line(tmp_path: Path) -> None:
    class Slow(Rehearsal):
        left_s = 0.0

        async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:  # noqa: N802
            self.left_s = context.time_remaining()
            return await super().Join(request, context)

    async def scenario() -> None:
        server = Slow(Script(), run=run_of())
        server.view = view(server, ending="done")
        async with stage(tmp_path, server) as on, asyncio.timeout(20):
            assert await on.agent().run() == "done"
        assert server.left_s > (5 << 20) / 2048 - 20

    asyncio.run(scenario())


def test_a_join_that_is_answered_with_no_message_ends_with_a_sentence_of_ours(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with garbled(tmp_path, Join=1) as on, asyncio.timeout(20):
            with pytest.raises(EdgeflockError, match="is not an fl-server of this generation"):
                await on.agent().run()

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------- foreign code


@pytest.mark.parametrize("error", ["IndexError", "ValueError", "AssertionError", "SystemExit"])
def test_what_a_users_model_raises_is_a_refused_task_and_the_process_lives_on(
    tmp_path: Path, error: str
) -> None:
    reference = "support.custom_models:touchy"
    made = models.build_custom(
        reference, input_shape=SHAPE, classes=CLASSES, arguments={"error": error}, seed=7
    )
    flat, run = FlatModel(made), run_of()
    run.model.name, run.model.arguments["error"] = "custom", error
    run.model.parameters.CopyFrom(layout_to_wire(flat.layout))
    sent = pack({Kind.MODEL: (flat.params, flat.layout, IDENTITY)}, {}, lambda _: torch.Generator())
    server = Rehearsal(Script(), sent.package, b"".join(map(bytes, sent.pieces)), run)

    def task(round: int, batch_size: int) -> pb.View:
        shown = view(server, round)
        shown.task.batch_size = batch_size
        shown.task.uploads[0].layout_digest = flat.layout.digest
        return shown

    async def scenario() -> None:
        async with stage(tmp_path, server, model=reference) as on, on.living():
            await server.show(task(1, 16))
            await server.until(lambda: len(server.said("refused")) == 1)
            (refused,) = server.said("refused")
            said = refused.refused.refusal.sentence
            assert said.startswith(f"training failed: {error}: what is that? (custom_models.py:")
            await server.show(task(2, 8))
            await server.until(lambda: len(server.received) == 1)

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------- slots


def test_a_client_whose_line_is_gone_gives_its_slot_to_one_that_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path, parallel=1) as on:
            run = await on.trainer.setup(run_from_wire(run_of()))
            random = Random(0)
            contact, entered = Contact(Backoff(random), Meter(alone=True)), asyncio.Event()

            async def hold() -> None:
                async with on.trainer.bench(run) as bench:
                    entered.set()
                    parcel = Parcel(Scope.SHARED, on.server.package)
                    await contact.fetch(1, parcel, partial(bench.room, run), on.trainer.slot_wanted)

            holder = asyncio.create_task(hold())
            await entered.wait()
            async with asyncio.timeout(20), on.trainer.bench(run):
                with pytest.raises(Interrupted, match="another client waits"):
                    await holder

    asyncio.run(scenario())


def test_a_temporary_refusal_is_waited_out(tmp_path: Path) -> None:
    server = rehearsal()
    later = pb.Refusal(reason=pb.REASON_DRAINING, sentence="later", temporary=True, retry_after_ms=50)
    server.join_refusals = [later, later]
    server.view = view(server, ending="done")
    assert ended(tmp_path, server) == "done"
    assert len(server.joins) == 3


def test_a_model_of_another_layout_is_refused_before_a_round(tmp_path: Path) -> None:
    end = ended(tmp_path, rehearsal(run=run_of(layout=Layout.single("head.weight", 10, 65))))
    assert isinstance(end, LayoutMismatch)
    assert "head.weight" in str(end)


def test_of_layouts_the_digests_are_asked_for_and_the_whole_only_to_say_what_differs(tmp_path: Path) -> None:
    class Brief(Rehearsal):
        async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:  # noqa: N802
            answer = await super().Join(request, context)
            if request.digests:
                answer.admission.run.model.parameters.ClearField("tensors")
            return answer

    fits = Brief(Script(), run=run_of())
    fits.view = view(fits, ending="done")
    assert ended(tmp_path / "fits", fits) == "done"
    other = Brief(Script(), run=run_of(layout=Layout.single("head.weight", 10, 65)))
    assert "head.weight [10, 64] here, head.weight [10, 65] there" in str(ended(tmp_path / "other", other))
    assert [join.digests for join in fits.joins + other.joins] == [True, True, False]


def test_a_finished_run_needs_no_seat(tmp_path: Path) -> None:
    server = rehearsal()
    server.join_refusals = [pb.Refusal(reason=pb.REASON_FINISHED, sentence="the run is over")]
    assert ended(tmp_path, server) == "the run is over"


def test_every_restart_has_its_window_for_the_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the second within 20 s, when the last connection was no long one."""
    seen: list[tuple[int, int]] = []

    def next_s(backoff: Backoff, *, retry_after_ms: int = 0, return_within_ms: int = 0) -> float:
        seen.append((return_within_ms, backoff.attempts))
        backoff.attempts += 1
        return 0.0

    monkeypatch.setattr(Backoff, "next_s", next_s)
    see, told = participation.Participation.see, asyncio.Queue[None]()

    def saw(part: participation.Participation, shown: View, line: Line) -> None:
        see(part, shown, line)
        if shown.draining:
            told.put_nowait(None)

    monkeypatch.setattr(participation.Participation, "see", saw)

    async def scenario() -> None:
        async with stage(tmp_path) as on, on.living():
            for restart in (1, 2):
                await on.round(restart)
                going = view(on.server)
                going.state, going.return_within_ms = pb.RUN_STATE_DRAINING, 700
                await on.server.show(going)
                await told.get()
                on.server.view = view(on.server)
                await on.server.cut()
                await on.settle(restart, on.server.received[-1])
            assert [attempts for window, attempts in seen if window] == [0, 0]

    asyncio.run(scenario())


def test_a_client_gives_up_after_the_time_it_was_given(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            on.target = "127.0.0.1:1"  # nothing listens there
            with pytest.raises(GaveUp, match=r"reached at 127.0.0.1:1 for 1 s: connection refused"):
                await on.agent(give_up_after_s=1.0).run()

    asyncio.run(scenario())


def test_a_client_that_stays_waits_for_the_next_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            server = on.server
            life = asyncio.create_task(on.agent(stay=True).run())
            await on.round(1)
            await server.show(view(server, 0, counted(1, server.received[-1]), ending="done"))
            await server.until(lambda: server.leaves == ["done"])
            server.run, server.view = run_of("run2"), view(server)
            await on.round(1)
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            assert server.leaves[-1] == "shut down"

    asyncio.run(scenario())


def test_an_outbox_that_cannot_be_written_ends_the_client_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stage(tmp_path) as on:
            agent = on.agent()
            (tmp_path / "c2" / "outbox" / "payload").mkdir(parents=True)  # in the way of the file
            life = asyncio.create_task(agent.run())
            await on.server.show(view(on.server, 1))
            with pytest.raises(EdgeflockError, match="cannot be written"):
                await asyncio.wait_for(life, 20)

    asyncio.run(scenario())
    assert Outbox(tmp_path / "c2").entry is None
