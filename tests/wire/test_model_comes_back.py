"""The model comes back: a real service offers it, a real client fetches it, over cuts and from old peers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

import edgeflock
from edgeflock.client.agent import Agent, AgentRules
from edgeflock.client.config import ClientConfig
from edgeflock.client.keeping.models import Shelf
from edgeflock.client.link.line import Link
from edgeflock.client.link.trust import Trust
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.payload.checksum import GRANULE
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind, Package
from edgeflock.common.wire.address import parse_address
from edgeflock.common.wire.messages import layout_to_wire
from edgeflock.v1 import aggregator_pb2 as pb
from support.rehearsal import Rehearsal, Script, serving
from support.tiny_server import Home, Served, serve

SHAPE, HIDDEN = (1, 8, 8), 8192  # 2.4 MB: more than two chunks
OFFER = pb.Offer(round=4)


def flat(hidden: int = HIDDEN) -> FlatModel:
    arguments = {"hidden": str(hidden)}
    return FlatModel(models.build("mlp", input_shape=SHAPE, classes=10, arguments=arguments, seed=7))


def packed(model: FlatModel) -> tuple[Package, bytes]:
    sent = pack({Kind.MODEL: (model.params, model.layout, IDENTITY)}, {}, lambda _: torch.Generator())
    return sent.package, b"".join(bytes(piece) for piece in sent.pieces)


def run_of() -> pb.Run:
    arguments = {"hidden": str(HIDDEN)}
    spec = pb.ModelSpec(name="mlp", input_shape=SHAPE, classes=10, arguments=arguments)
    spec.parameters.CopyFrom(layout_to_wire(flat().layout))
    data = pb.DataSpec(dataset="digits", partition="iid", seed=7, shards=4, samples_per_client=64)
    return pb.Run(run_id="run1", epoch=1, seed=7, method="fedavg", model=spec, data=data, clients=4)


def over(offer: pb.Offer | None = OFFER, **more: Any) -> pb.View:
    ending = pb.Ending(kind=pb.ENDING_KIND_COMPLETED, reason="all 4 rounds are done")
    seat = pb.Seat(index=2, seats=4)
    return pb.View(round=4, state=pb.RUN_STATE_FINISHED, seat=seat, ending=ending, offer=offer, **more)


Talk = Callable[[Rehearsal, Callable[[], Agent]], Awaitable[None]]


def play(folder: Path, script: Script, talk: Talk, shelf: Shelf | None = None) -> Rehearsal:
    """Let the talk use clients of one state directory and one shelf, against a rehearsal server."""
    server = Rehearsal(script, *packed(flat()), run_of())
    kept = shelf or Shelf(folder / "models")

    async def both() -> None:
        trainer = Trainer(ClientConfig())
        async with asyncio.timeout(60), serving(server) as target:

            def agent() -> Agent:
                rules = AgentRules(b"i" * 16, False, 60.0, alone=True)
                link = Link(Trust(parse_address(target, "--server")))
                (folder / "c2").mkdir(exist_ok=True)
                return Agent("c2", folder / "c2", link, trainer, rules, kept)

            try:
                await talk(server, agent)
            finally:
                trainer.close()

    asyncio.run(both())
    return server


async def once(server: Rehearsal, agent: Callable[[], Agent]) -> None:
    await server.show(over())
    assert await agent().run() == "all 4 rounds are done"


# ------------------------------------------------------------------------------------------ the client


def test_a_client_that_comes_when_the_run_is_over_gets_the_model_and_runs_the_command(tmp_path: Path) -> None:
    told = tmp_path / "told"
    (tmp_path / "on-model.sh").write_text(
        f'#!/bin/sh\necho "$EDGEFLOCK_ROUND $EDGEFLOCK_MODEL" >> {told}\nexit 3\n'
    )
    (tmp_path / "on-model.sh").chmod(0o755)
    shelf = Shelf(tmp_path / "models", command=(str(tmp_path / "on-model.sh"),))
    with capture_logs() as logs:
        server = play(tmp_path, Script(), once, shelf)
    assert server.joins[0].saves == "final"
    model = edgeflock.load(tmp_path / "models")
    assert torch.equal(FlatModel(model.net).params, flat().params)
    assert (model.about["round"], model.about["run"], model.about["client"]) == ("4", "run1", "c2")
    assert model.about["digest"] == packed(flat())[0].digest.hex()
    assert told.read_text() == f"4 {tmp_path}/models/current/model.safetensors\n"
    assert [log["reason"] for log in logs if log["event"] == "on_model_failed"] == ["it ended with 3"]
    assert server.leaves == ["all 4 rounds are done"]  # after it was here


def test_a_transfer_that_is_cut_goes_on_where_it_broke(tmp_path: Path) -> None:
    server = play(tmp_path, Script(cuts=[3 * GRANULE, None]), once)
    assert server.offsets == [0, 3 * GRANULE]
    assert (tmp_path / "models" / "current" / "model.safetensors").exists()
    assert not list((tmp_path / "models").glob(".arriving*"))


def test_a_client_that_was_stopped_goes_on_in_its_next_life_and_runs_nothing_twice(tmp_path: Path) -> None:
    async def talk(server: Rehearsal, agent: Callable[[], Agent]) -> None:
        await server.show(over())
        life = asyncio.create_task(agent().run())
        await server.until(lambda: server.attempts == 2)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        assert await agent().run()
        assert await agent().run()  # it has it: nothing is fetched

    held = pb.Refusal(reason=pb.REASON_BUSY, sentence="later", temporary=True, retry_after_ms=60_000)
    script = Script(cuts=[2 * GRANULE], refusals=[None, held])
    server = play(tmp_path, script, talk)
    assert server.offsets == [0, 2 * GRANULE, 2 * GRANULE]
    assert len(list((tmp_path / "models" / "versions").iterdir())) == 1


def test_a_hostile_servers_model_is_bounded_by_the_layout_that_the_client_knows(tmp_path: Path) -> None:
    async def talk(server: Rehearsal, agent: Callable[[], Agent]) -> None:
        server.package, server.payload = packed(flat(2 * HIDDEN))
        await once(server, agent)

    with capture_logs() as logs:
        play(tmp_path, Script(), talk)
    (said,) = [log for log in logs if log["event"] == "model_not_saved"]
    assert "numbers of another layout than this client's" in said["reason"]
    assert not (tmp_path / "models" / "current").exists()


def test_a_server_of_before_that_offers_none_is_left_with_a_word(tmp_path: Path) -> None:
    async def talk(server: Rehearsal, agent: Callable[[], Agent]) -> None:
        await server.show(over(offer=None))
        assert await agent().run() == "all 4 rounds are done"

    with capture_logs() as logs:
        server = play(tmp_path, Script(), talk)
    assert [log["event"] for log in logs if log["event"].startswith("model_")] == ["model_not_offered"]
    assert server.attempts == 0


# ------------------------------------------------------------------------------------------ the server


@pytest.mark.parametrize("method", ["fedavg", "fedexp"])
def test_the_final_model_is_offered_to_who_has_asked_and_its_bytes_are_in_the_books_apart(
    tmp_path: Path, method: str
) -> None:
    home = Home(tmp_path, rounds=1, clients=2, method=method)

    async def talk(served: Served) -> None:
        plain, asking = served.peer("c0"), served.peer("c1")
        await plain.enter()
        await asking.enter(saves="final")
        for peer in (plain, asking):
            await peer.ready()
        await served.run.open(1)
        assert not asking.last.HasField("offer")
        early = await asking.fetch(round=1, scope=pb.SCOPE_RESULT)
        assert early[0].refusal.reason == pb.REASON_NO_SUCH_PACKAGE
        await served.finish_round([plain, asking])
        ended = await asking.view(lambda view: view.HasField("ending"))
        assert ended.offer == pb.Offer(round=1)
        assert not (await plain.view(lambda view: view.HasField("ending"))).HasField("offer")
        described, *chunks = await asking.fetch(round=1, scope=pb.SCOPE_RESULT)
        payload = b"".join(answer.chunk.data for answer in chunks)
        assert len(payload) == described.package.size_bytes == result.stat().st_size - header(result)
        assert payload == result.read_bytes()[-len(payload) :]

    def header(path: Path) -> int:
        return 8 + int.from_bytes(path.read_bytes()[:8], "little")

    result = home.run_dir / "model.safetensors"
    serve(home, talk)
    size = result.stat().st_size - header(result)
    assert home.rows("SELECT round, value FROM round_costs WHERE name = 'result_bytes'") == [(1, size)]
    ((down,),) = home.rows("SELECT sum(bytes_down) FROM costs")
    ((bundles,),) = home.rows("SELECT sum(bytes) FROM bundle_bytes WHERE direction = 'down'")
    assert down == bundles < 3 * size


def test_a_life_after_the_end_offers_the_same_bytes(tmp_path: Path) -> None:
    home, digests = Home(tmp_path, rounds=1, clients=2), []

    async def ending(served: Served) -> None:
        await served.finish_round(await served.gather())

    async def asked(served: Served) -> None:
        peer = served.peer("c0")
        await peer.enter(saves="best")  # no test has said which is best: the last
        if not peer.last.HasField("ending"):
            await peer.view(lambda view: view.HasField("ending"))
        assert peer.last.offer == pb.Offer(round=1)
        described, *_ = await peer.fetch(round=1, scope=pb.SCOPE_RESULT)
        digests.append(described.package.digest)
        again = await peer.fetch(round=1, scope=pb.SCOPE_RESULT, digest=described.package.digest)
        assert len(again) == 1  # the chunk alone

    serve(home, ending)
    for _ in range(2):
        serve(home, asked)
    assert digests[0] == digests[1]


def test_a_view_without_an_offer_is_the_one_of_before(tmp_path: Path) -> None:
    """Who asks for nothing is told nothing more, whatever is best meanwhile."""

    async def talk(served: Served) -> None:
        peer = served.peer("c0")
        await peer.enter()
        engine = served.run.engine
        before = served.service._intake.view("c0")
        engine.machine.testing.best = (0.5, 1)
        assert served.service._intake.view("c0") == before
        assert replace(before, offer=None) == before

    serve(Home(tmp_path), talk)
