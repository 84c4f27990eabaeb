"""The closing task over a real port: what everybody is told, what an answer must be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from edgeflock.common.scores import LOCAL
from edgeflock.methods.kit.base import Method
from edgeflock.v1 import aggregator_pb2 as pb
from support.asks import Asks
from support.tiny_run import answer
from support.tiny_server import Home, Peer, Served, serve

Talk = Callable[[Served, list[Peer]], Awaitable[None]]


def close(root: Path, talk: Talk) -> Home:
    """Serve one round in which c0 alone trains; then talk, with the closing task open."""
    home = Home(root, rounds=1, method=Method("asks", "asks", server=Asks), client_tests=(LOCAL,))
    home.rules = replace(home.rules, cohort=1, min_updates=1, script=(("c0",),))

    async def trained(served: Served) -> None:
        peers = await served.gather()
        await peers[0].deliver(served.made(0))
        await served.run.open(2)
        await talk(served, peers)

    serve(home, trained)
    return home


def verdicts(home: Home) -> dict[int, str]:
    return dict(home.rows("SELECT seat, verdict FROM outcomes WHERE round = 2"))


def test_everybody_sees_it_whoever_has_trained_and_hears_the_verdict_and_the_end(tmp_path: Path) -> None:
    async def talk(served: Served, peers: list[Peer]) -> None:
        for index, peer in enumerate(peers):
            task = (await peer.view(lambda view: view.task.round == 2)).task
            assert (task.closing, task.steps, task.HasField("steps"), task.lr) == (True, 0, True, 0.5)
            assert (list(task.uploads), task.upload_limit_bytes) == ([], 0)
            assert (dict(task.flags), list(task.scores)) == ({"question": 1.0}, [LOCAL])
            package = task.downloads[0].package
            answers = await peer.fetch(round=2, scope=pb.SCOPE_SHARED, digest=package.digest)
            assert sum(len(part.chunk.data) for part in answers) == package.size_bytes > 0
            received = await peer.deliver(answer(index, wish=1.0))
            assert received.WhichOneof("message") in ("received", "outcome")
        for peer in peers:
            last = await peer.view(lambda view: view.HasField("ending"))
            assert (last.outcomes[-1].round, last.outcomes[-1].counted) == (2, True)
            assert last.ending.reason == "all 1 rounds are done"

    assert verdicts(close(tmp_path, talk)) == {0: "counted", 1: "counted", 2: "counted"}


def test_an_answer_with_bundles_or_without_its_numbers_is_refused(tmp_path: Path) -> None:
    async def talk(served: Served, peers: list[Peer]) -> None:
        for made, words in (
            (served.made(0), "wanted is nothing"),
            (answer(0), "lacks the scalar 'wish'"),
        ):
            refused = (await peers[0].deliver(made)).refusal
            assert refused.reason == pb.REASON_MALFORMED
            assert words in refused.sentence
        for index, peer in enumerate(peers):
            await peer.deliver(answer(index, wish=1.0))
        await served.run.committed(2)

    assert verdicts(close(tmp_path, talk)) == {0: "counted", 1: "counted", 2: "counted"}


def test_an_answer_that_is_told_again_is_the_same_answer(tmp_path: Path) -> None:
    async def talk(served: Served, peers: list[Peer]) -> None:
        for _ in range(2):
            again = await peers[1].deliver(answer(1, wish=4.0))
            assert again.WhichOneof("message") == "received"
        other = (await peers[1].deliver(answer(1, wish=5.0))).refusal
        assert other.reason == pb.REASON_LATE
        for index in (0, 2):
            await peers[index].deliver(answer(index, wish=0.0))
        await served.run.committed(2)
        settled = (await peers[1].deliver(answer(1, wish=4.0), round=2)).outcome
        assert settled.counted
        assert served.run.learner.state.vectors["chosen"].sub(served.run.learner.state.model).max() > 40

    close(tmp_path, talk)
