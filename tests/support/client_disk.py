"""A client's recorded life, its disk after a power cut at any instant, and how one goes on from there."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from structlog.testing import capture_logs

from edgeflock.client.agent import Agent, AgentRules
from edgeflock.client.config import ClientConfig
from edgeflock.client.keeping.statedir import StateDir
from edgeflock.client.link.line import Link
from edgeflock.client.link.trust import Trust
from edgeflock.client.training.trainer import Trainer
from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.payload import choice
from edgeflock.common.payload.pack import pack
from edgeflock.common.payload.package import IDENTITY, Kind
from edgeflock.common.wire.address import parse_address
from edgeflock.common.wire.messages import choice_to_wire, kind_to_wire, layout_to_wire, package_to_wire
from edgeflock.v1 import aggregator_pb2 as pb
from support import powerloss
from support.filecalls import Call, Recorder
from support.powerloss import Cut, Disk, Fate, Image
from support.processes import Flock
from support.rehearsal import Rehearsal, Script, serving

NAME, ROUNDS = "c2", 5
_SHAPE, _CLASSES = (1, 8, 8), 10
_ALL = Cut(Fate.KEPT, Fate.KEPT)
_DATES = (0, 1_000_000_000, 4_000_000_000)  # of clocks that are behind, stuck or ahead


class Books(Rehearsal):
    """A server that has counted one update of each round up to some, and asks for the next round."""

    def __init__(self, codec: str) -> None:
        flat = FlatModel(models.build("linear", input_shape=_SHAPE, classes=_CLASSES, seed=7))
        sent = pack({Kind.MODEL: (flat.params, flat.layout, IDENTITY)}, {}, lambda _: torch.Generator())
        spec = pb.ModelSpec(name="linear", input_shape=_SHAPE, classes=_CLASSES)
        spec.parameters.CopyFrom(layout_to_wire(flat.layout))
        data = pb.DataSpec(dataset="digits", partition="iid", seed=7, shards=4, samples_per_client=64)
        run = pb.Run(run_id="run1", epoch=0, seed=7, method="fedavg", model=spec, data=data, clients=4)
        super().__init__(Script(), sent.package, b"".join(map(bytes, sent.pieces)), run)
        self._codec, self._layout = choice.parse(codec), flat.layout.digest
        self.asked = 0
        self.counted: dict[int, pb.UpdateHeader] = {}

    async def ask(self, round: int, counted: dict[int, pb.UpdateHeader]) -> None:
        """Ask for a round when those before it have counted so."""
        self.asked, self.counted, self.headers = round, counted, []
        await self.show(self._view())

    def _view(self) -> pb.View:
        view = pb.View(round=self.asked, state=pb.RUN_STATE_RUNNING, seat=pb.Seat(index=2, seats=4))
        before = [one for number, one in sorted(self.counted.items()) if number < self.asked]
        view.outcomes.extend(map(_outcome, before[-2:]))
        moved = [one for one in before if one.moves_state]
        view.standing.CopyFrom(pb.Standing())
        if moved:
            view.standing.CopyFrom(pb.Standing(round=moved[-1].round, digest=moved[-1].package.digest))
        assert self.package is not None
        view.task.CopyFrom(pb.Task(round=self.asked, steps=3, batch_size=16, lr=0.1))
        view.task.downloads.add(
            scope=pb.SCOPE_SHARED, package=package_to_wire(self.package), payload=self.payload
        )
        codec = choice_to_wire(self._codec)
        view.task.uploads.add(kind=kind_to_wire(Kind.DELTA), layout_digest=self._layout, codec=codec)
        return view

    async def Deliver(  # type: ignore[override]  # noqa: N802 - the types know no reader and writer
        self, request_iterator: Any, context: Any
    ) -> None:
        header = (await context.read()).header
        known = self.counted.get(header.round)
        if header.round < self.asked and known is not None:
            same = known.package.digest == header.package.digest
            late = pb.Outcome(round=header.round, digest=header.package.digest, reason=pb.REASON_LATE)
            await context.write(pb.DeliverResponse(outcome=_outcome(known) if same else late))
            return
        self.headers.append(header)
        await context.write(pb.DeliverResponse(received=pb.Received()))
        await self.nudge()


def _outcome(header: pb.UpdateHeader) -> pb.Outcome:
    return pb.Outcome(round=header.round, digest=header.package.digest, counted=True)


# ------------------------------------------------------------------------------ recording


@dataclass(frozen=True)
class Recording:
    """What a client did to its disk in some rounds, and the updates that it made."""

    codec: str
    folder: Path  # of the disk
    calls: list[Call]
    made: dict[int, pb.UpdateHeader]  # by round
    fresh: dict[int, bytes]  # the digests of a client that has lost all, by round
    identity: bytes  # of the client, from before its first round on


def record(folder: Path, codec: str) -> Recording:
    """Record a client in a process of its own, and what clients without a state make of the same rounds."""
    (folder / "disk").mkdir(parents=True)
    calls, made = asyncio.run(_record(folder, codec))

    async def alone() -> dict[int, bytes]:
        async with trying(codec) as trial:
            return {round: (await trial.update(folder / f"fresh-{round}", round, {})) for round in made}

    identity = (folder / "disk" / "state" / "identity.toml").read_bytes()
    return Recording(codec, folder / "disk", calls, made, asyncio.run(alone()), identity)


async def _record(folder: Path, codec: str) -> tuple[list[Call], dict[int, pb.UpdateHeader]]:
    flock, server, made = Flock(folder), Books(codec), dict[int, pb.UpdateHeader]()
    async with serving(server) as target:
        try:
            place = f"--state-dir={folder / 'disk' / 'state'}"
            client = flock.start(
                "fl-client", f"--id={NAME}", f"--server={target}", place, gate=folder / "gate"
            )
            recorder = Recorder(client, folder / "gate")
            for round in range(1, ROUNDS + 1):
                await server.ask(round, made)
                await server.until(lambda: bool(server.headers), limit_s=60)
                made[round] = server.headers[0]
            client.kill()  # its last update is not settled
            return recorder.calls(), made
        finally:
            flock.close()


# ------------------------------------------------------------------------------ instants


@dataclass(frozen=True)
class Instant:
    """A moment of the recorded life: how far the client was."""

    number: int
    disk: Disk
    settled: int  # the last round whose word it has heard
    kept: int  # the round of the update that was whole on its disk; 0: none was

    @property
    def rounds(self) -> Sequence[int]:
        """What its server may ask for then: the round after what it has counted, which may be more."""
        possible = {self.settled + 1, *([self.kept + 1] if self.kept else [])}
        return sorted(round for round in possible if round <= ROUNDS)


def instants(recording: Recording) -> Iterator[Instant]:
    """Give every moment after a call that changes what a power cut may leave."""
    disk, number, kept = Disk(recording.folder), 0, 0
    yield Instant(0, disk, 0, 0)
    for call in recording.calls:
        if disk.do(call):
            number, kept = number + 1, max(kept, _kept(disk.after(_ALL)))
            held = _kept(disk.after(_ALL))
            yield Instant(number, disk, held - 1 if held else kept, held)


def _kept(image: Image) -> int:
    """Return the round of the update in the outbox; 0: there is none."""
    meta = image.get(f"state/clients/{NAME}/outbox/meta") or b""
    return int(json.loads(meta.split(b"\n")[0])["round"]) if meta.startswith(b"{") else 0


# ------------------------------------------------------------------------------ going on


@dataclass
class Trial:
    """A server, and clients that start in a directory and are stopped when they have made an update."""

    server: Books
    target: str
    trainer: Trainer

    async def update(self, place: Path, round: int, counted: dict[int, pb.UpdateHeader]) -> bytes:
        """Start a client there; return the digest of the update that it makes of that round."""
        await self.server.ask(round, counted)
        state = StateDir.open(place, NAME)
        rules = AgentRules(state.identity.instance, stay=False, give_up_after_s=60.0, alone=True)
        link = Link(Trust(parse_address(self.target, "--server")))
        life = asyncio.create_task(Agent(NAME, state.folder(NAME), link, self.trainer, rules).run())
        life.add_done_callback(lambda _: asyncio.ensure_future(self.server.nudge()))
        try:
            await self.server.until(lambda: life.done() or bool(self.server.headers))
            assert not life.done(), life.exception()
            (header,) = self.server.headers
            assert header.round == round
            return bytes(header.package.digest)
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            await link.close()
            state.close()


@asynccontextmanager
async def trying(codec: str) -> AsyncIterator[Trial]:
    server, trainer = Books(codec), Trainer(ClientConfig())
    try:
        async with serving(server) as target:
            yield Trial(server, target, trainer)
    finally:
        trainer.close()


async def go_on(trial: Trial, recording: Recording, image: Image, round: int, place: Path, seed: int) -> str:
    """Start a client on an image, asked for a round; return how it went on.

    Its update has the bits of the undisturbed life, or of a client without a state that has said so.
    """
    _lay_out(image, place, random.Random(seed))
    with capture_logs() as lines:
        digest = await trial.update(place / "state", round, recording.made)
    said = [line["event"] for line in lines]
    assert "identity_renewed" not in said, "its identity was torn"
    if digest == recording.made[round].package.digest:
        return "same"
    assert digest == recording.fresh[round], "other bits"
    assert "state_lost" in said, "other bits without a word"
    return "lost"


def _lay_out(image: Image, place: Path, dice: random.Random) -> None:
    """Make the files of an image, with the dates of clocks that are wrong."""
    place.mkdir()
    powerloss.write(image, place)
    for path in place.rglob("*"):
        date = dice.choice(_DATES)
        os.utime(path, (date, date))
