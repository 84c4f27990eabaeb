"""S0: what a server half computes beside an open round, with updates and personal packages meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from edgeflock.common.errors import UsageError
from edgeflock.methods.kit.base import Bundles, Kind, Method, Params, Round, ServerHalf, State
from edgeflock.server.core.decisions import EndingKind
from edgeflock.server.files.packages import Broadcast
from edgeflock.server.learning.learner import Learner
from edgeflock.v1 import aggregator_pb2 as pb
from support import tiny_server
from support.tiny_server import WAIT_S, Home, Peer, Served, Talk


class Gate:
    """Holds S0 until it is opened; what it does then is told before."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.result: State | Exception | None = State({"found": torch.ones(1)})
        self.ended = threading.Event()


def method_of(gate: Gate) -> Method:
    """Return FedAvg with personal packages, whose S0 waits at the gate."""

    class Half(ServerHalf[Params]):
        def prepare(self, state: State, round: Round) -> State | None:
            gate.reached.set()
            while self.going and not gate.opened.wait(0.01):
                pass
            gate.ended.set()
            if isinstance(gate.result, Exception):
                raise gate.result
            return gate.result if self.going else None

        def broadcast(self, state: State, round: Round) -> Bundles:
            return {}

        def personal(self, state: State, round: Round, seat: int) -> Bundles:
            return {Kind.MODEL: state.model + seat}

        def personal_kinds(self, round: Round) -> tuple[Kind, ...]:
            return (Kind.MODEL,)

    return Method(name="gated", summary="waits", server=Half)


def serve(folder: Path, gate: Gate, talk: Talk, rounds: int = 1) -> Served:
    """Serve a run of two clients while the talk goes on; return what was served."""
    seen: list[Served] = []

    async def watched(served: Served) -> None:
        seen.append(served)
        await talk(served)

    tiny_server.serve(Home(folder, method=method_of(gate), clients=2, rounds=rounds), watched)
    return seen[0]


def test_clients_fetch_and_deliver_while_the_server_prepares_and_the_commit_waits_for_it(
    tmp_path: Path,
) -> None:
    gate = Gate()

    async def talk(served: Served) -> None:
        peers = await served.gather()
        assert await asyncio.to_thread(gate.reached.wait, WAIT_S)
        first, second = [await peer.fetch(round=1, scope=pb.SCOPE_PERSONAL) for peer in peers]
        assert first[0].package.digest != second[0].package.digest
        for index, peer in enumerate(peers):
            answer = await peer.deliver(served.made(index))
            assert answer.WhichOneof("message") == "received", answer
        again = await peers[0].fetch(round=1, scope=pb.SCOPE_PERSONAL)
        assert again[0].HasField("refusal")  # the task is done
        assert served.run.now.committed == 0
        assert not gate.ended.is_set()
        gate.opened.set()
        await served.run.committed(1)

    home = serve(tmp_path, gate, talk).home
    ((busy_s,),) = home.rows("SELECT value FROM round_costs WHERE name = 'prepare_busy'")
    assert 0 < busy_s < time.monotonic()


def test_a_failure_ends_the_run_with_its_own_words(tmp_path: Path) -> None:
    gate = Gate()
    gate.result = UsageError("the public data are gone")

    async def talk(served: Served) -> None:
        await served.gather()
        gate.opened.set()
        ending = await asyncio.wait_for(asyncio.shield(served.run.ended), WAIT_S)
        assert ending is not None
        assert ending.kind is EndingKind.FAILED
        assert "the public data are gone" in ending.reason

    serve(tmp_path, gate, talk)


def test_a_result_that_is_not_finite_ends_the_run_and_names_round_and_method(tmp_path: Path) -> None:
    gate = Gate()
    gate.result = State({"found": torch.tensor([1.0, float("nan")])})

    async def talk(served: Served) -> None:
        for index, peer in enumerate(await served.gather()):
            await peer.deliver(served.made(index))
        gate.opened.set()
        ending = await asyncio.wait_for(asyncio.shield(served.run.ended), WAIT_S)
        assert ending is not None
        assert "round 1: what gated trains on the server holds NaN" in ending.reason

    serve(tmp_path, gate, talk)


def test_a_server_that_goes_down_cuts_it_short_and_does_it_again_when_it_is_back(tmp_path: Path) -> None:
    gate = Gate()

    async def leave(served: Served) -> None:
        peers = await served.gather()
        for index, peer in enumerate(peers):
            await peer.deliver(served.made(index))

    served = serve(tmp_path, gate, leave)
    assert gate.ended.is_set()
    assert served.run.now.committed == 0

    async def come_back(served: Served) -> None:
        gate.opened.set()
        await served.run.committed(1)  # from the spool

    serve(tmp_path, gate, come_back)


def test_a_package_for_which_there_is_no_room_is_to_be_had_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one that cannot be read now; the stream ends with the reason, as that of an upload does."""
    gate, full = Gate(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "personal-000000.package")
    gate.opened.set()

    def fail(*_: object) -> NoReturn:
        raise full

    async def refusal(peer: Peer) -> tuple[str, bool, bool]:
        *_, answer = await peer.fetch(round=1, scope=pb.SCOPE_PERSONAL)
        found = answer.refusal
        return pb.Reason.Name(found.reason), found.temporary, found.retry_after_ms > 0

    async def talk(served: Served) -> None:
        peer, *_ = await served.gather()
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "personal", fail)
            assert await refusal(peer) == ("REASON_NO_SPACE", True, True)
        full.errno = errno.EMFILE
        with monkeypatch.context() as patch:
            patch.setattr(Broadcast, "message", fail)
            assert await refusal(peer) == ("REASON_BUSY", True, True)
        *_, last = await peer.fetch(round=1, scope=pb.SCOPE_PERSONAL)
        assert last.HasField("chunk")

    serve(tmp_path, gate, talk)
