"""Scores of clients' own models: asked for in the task, told with the update, written with the commit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.scores import LOCAL, POOLED, ClientScore
from edgeflock.v1 import aggregator_pb2 as pb
from support import processes, tiny_server
from support.tiny_run import Made, with_number
from support.tiny_server import Home, Served, Talk


def serve(home: Home, talk: Talk) -> None:
    with capture_logs():
        tiny_server.serve(home, talk)


def scored(made: Made, *scores: ClientScore) -> Made:
    return replace(made, scores=scores)


def local(index: int) -> ClientScore:
    """A client's score: 4, 5 or 6 hits of 10."""
    return ClientScore(LOCAL, 10, 4 + index, 0.5 + index)


ASKED = (LOCAL, POOLED)


def test_the_task_asks_for_them_in_the_rounds_that_are_evaluated(tmp_path: Path) -> None:
    seen = {}

    async def talk(served: Served) -> None:
        peers = await served.gather()
        for number in (1, 2, 3):
            view = await peers[0].view(lambda view, number=number: view.task.round == number)  # type: ignore[misc]
            seen[number] = tuple(view.task.scores)
            await served.finish_round(peers)

    serve(Home(tmp_path, rounds=3, client_tests=ASKED, eval_every=2), talk)
    assert seen == {1: (), 2: ASKED, 3: ASKED}  # the last one always


def test_those_of_the_counted_updates_are_written_and_summed_up(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        for index in (0, 1):
            pooled = ClientScore(POOLED, 1000, 300 * (index + 1), 2.0)
            await peers[index].deliver(scored(served.made(index), local(index), pooled))
        await peers[2].deliver(scored(with_number(served.made(2), 3, math.nan), local(2)))
        await served.run.committed(1)

    home = Home(tmp_path, min_updates=2, client_tests=ASKED)
    serve(home, talk)
    single = (
        "SELECT seat, model, samples, value, loss FROM client_scores WHERE round = 1 ORDER BY seat, model"
    )
    assert home.rows(single) == [
        (0, LOCAL, 10, 0.4, 0.5), (0, POOLED, 1000, 0.3, 2.0),
        (1, LOCAL, 10, 0.5, 1.5), (1, POOLED, 1000, 0.6, 2.0),
    ]  # fmt: skip
    columns = "model, value, loss, samples, members, deviation, worst_tenth"
    together = f"SELECT {columns} FROM evaluations ORDER BY model"
    expected = [(LOCAL, 0.45, 1.0, 20, 2, 0.05, 0.4), (POOLED, 0.45, 2.0, 2000, 2, 0.15, 0.3)]
    for found, wanted in zip(home.rows(together), expected, strict=True):
        assert found[0] == wanted[0]
        assert found[1:] == pytest.approx(wanted[1:])
    assert len(home.rows("SELECT 1 FROM events WHERE name = 'evaluated'")) == 2


def test_they_survive_a_crash_of_the_server_with_the_update(tmp_path: Path) -> None:
    home = Home(tmp_path, rounds=1, client_tests=ASKED)

    async def two(served: Served) -> None:
        peers = await served.gather()
        for index in (0, 1):
            await peers[index].deliver(scored(served.made(index), local(index)))

    async def the_third(served: Served) -> None:
        peers = await served.gather()
        assert served.run.received == [0, 1]
        await peers[0].deliver(scored(served.made(0), local(0)))  # told again: nothing new
        await peers[2].deliver(scored(served.made(2), local(2)))
        await served.run.committed(1)

    serve(home, two)
    serve(home, the_third)
    found = home.rows("SELECT seat, value FROM client_scores ORDER BY seat")
    assert found == [(0, 0.4), (1, 0.5), (2, 0.6)]


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([ClientScore("client_secret", 10, 1, 0.0)], "the name 'client_secret'"),
        ([ClientScore(LOCAL, 0, 0, 0.0)], "0 hits of 0 samples"),
        ([ClientScore(LOCAL, 10, 11, 0.0)], "11 hits of 10 samples"),
        ([ClientScore(LOCAL, 2**63, 0, 0.0)], "samples"),
        ([ClientScore(LOCAL, 10, 1, math.nan)], "loss nan"),
        ([ClientScore(LOCAL, 10, 1, math.inf)], "loss inf"),
        ([ClientScore(LOCAL, 10, 1, 1e300)], "loss 1e+300"),
        ([ClientScore(LOCAL, 10, 1, 0.0), ClientScore(LOCAL, 10, 1, 0.0)], "told twice"),
    ],
)
def test_what_cannot_be_a_score_is_refused_and_the_server_lives_on(
    tmp_path: Path, scores: list[ClientScore], words: str
) -> None:
    async def talk(served: Served) -> None:
        peers = await served.gather()
        answer = await peers[0].deliver(scored(served.made(0), *scores))
        assert answer.refusal.reason == pb.REASON_MALFORMED
        assert words in answer.refusal.sentence
        await served.finish_round(peers)

    serve(Home(tmp_path, rounds=1, client_tests=ASKED), talk)


# ------------------------------------------------------------------------------- real processes


def test_a_client_is_scored_on_its_own_test_samples_with_its_own_model(tmp_path: Path) -> None:
    """Alone, its model after the local work is the next global one: the final file scores the same."""
    x, y = _digits(400)
    np.savez(tmp_path / "own.npz", x=x[:200], y=y[:200], x_test=x[200:300], y_test=y[200:300])
    np.savez(tmp_path / "eval.npz", x=x[300:], y=y[300:])
    flags = (
        "--clients=1",
        "--rounds=3",
        "--eval-every=3",
        "--eval-clients=local",
        "--model=linear",
        "--lr=0.5",
    )
    with processes.flock(tmp_path) as flock:
        server = flock.server(*flags, f"--eval-data={tmp_path / 'eval.npz'}")
        client = flock.client("c0", f"--data={tmp_path / 'own.npz'}")
        assert [server.ended(), client.ended()] == [0, 0]
        found = flock.rows("SELECT round, seat, model, samples, value FROM client_scores")
        model = _weights(flock.run_dir / "model.safetensors")
    logits = x[200:300].reshape(100, -1) @ model["head.weight"].T + model["head.bias"]
    accuracy = float((logits.argmax(1) == y[200:300]).mean())
    assert found == [(3, 0, LOCAL, 100, accuracy)]
    assert accuracy > 0.3


def test_testing_clients_changes_no_bits_and_leaves_out_who_has_no_samples(tmp_path: Path) -> None:
    flags = ("--clients=3", "--rounds=2", "--partition=dirichlet:0.3", "--seed=5")
    hashes = []
    for wish in ("off", "both"):
        (tmp_path / wish).mkdir()
        with processes.flock(tmp_path / wish) as flock:
            server = flock.server(*flags, f"--eval-clients={wish}")
            client = flock.client("c0,c1,c2")
            assert [server.ended(), client.ended()] == [0, 0]
            hashes.append(flock.sha256())
            found = flock.rows("SELECT round, seat, model, samples FROM client_scores ORDER BY 1, 2, 3")
    assert hashes[0] == hashes[1]
    test = len(datasets.load("digits", None).test)
    assert {(number, index) for number, index, _, _ in found} == {(n, i) for n in (1, 2) for i in range(3)}
    assert {samples for _, _, model, samples in found if model == POOLED} == {test}
    assert all(0 < samples < test for _, _, model, samples in found if model == LOCAL)


def test_in_the_end_everybody_is_tested_with_the_model_of_its_last_participation(tmp_path: Path) -> None:
    """Of a cohort of two the last round's mean would be that of two; and the test changes no bits."""
    flags = (
        "--clients=4",
        "--cohort=2",
        "--rounds=4",
        "--model=linear",
        "--partition=dirichlet:0.3",
        "--seed=5",
    )
    hashes = []
    for wish in ("off", "local"):
        (tmp_path / wish).mkdir()
        with processes.flock(tmp_path / wish) as flock:
            server = flock.server(*flags, f"--eval-clients={wish}")
            client = flock.client("c0,c1,c2,c3")
            assert [server.ended(), client.ended()] == [0, 0]
            hashes.append(flock.sha256())
            found = flock.rows("SELECT round, seat, value, loss FROM client_scores ORDER BY 1, 2")
            members = dict(flock.rows("SELECT round, members FROM evaluations WHERE model = 'client_local'"))
    assert hashes[0] == hashes[1]
    assert members == {1: 2, 2: 2, 3: 2, 4: 2, 5: 4}
    last = {seat: score for number, seat, *score in found if number <= 4}
    closing = {seat: score for number, seat, *score in found if number == 5}
    assert len(last) == 4, "a seed with which everybody took part"
    assert closing == last


def _digits(count: int) -> tuple[Any, Any]:
    dataset = datasets.load("digits", None)
    part = dataset.ready(dataset.train.take(np.arange(count)))
    return part.x, part.y


def _weights(path: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return {name: value.astype(np.float64) for name, value in load_file(path).items()}
