"""The global model is tested on the devices as they receive it, also where the server has no data at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit import registry as datasets
from support import processes


def test_without_data_on_the_server_the_devices_judge_every_model_of_the_run(tmp_path: Path) -> None:
    """Each round's model on all held-out samples together, by hand; the last one by the closing task."""
    test = datasets.load("digits").test
    parts = [slice(0, 150), slice(150, 300)]
    for number, part in enumerate(parts):
        np.savez(tmp_path / f"c{number}.npz", x=test.x[part] / np.float32(16), y=test.y[part])
    asked = ("--input-shape=1x8x8", "--classes=10", "--model=linear", "--lr=0.5", "--keep-every=1")
    with processes.flock(tmp_path) as flock:
        server = flock.server("--clients=2", "--rounds=3", *asked)
        data = [f"--data={tmp_path}/c{number}.npz" for number in (0, 1)]
        clients = [flock.client(f"c{number}", data[number], "--hold-out=0.3") for number in (0, 1)]
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        found = flock.rows("SELECT round, model, value, samples, members FROM evaluations ORDER BY round")
        each = flock.rows("SELECT round, seat, model, samples, value FROM client_scores ORDER BY 1, 2")
        models = {number: flock.run_dir / f"rounds/{number:06d}/model.safetensors" for number in (1, 2, 3)}
        weights = {number: load_file(path) for number, path in models.items()}
    held = [own.held_out(own.load_own(tmp_path / f"c{seat}.npz"), 0.3, 0, seat).test for seat in (0, 1)]
    hits: dict[int, list[int]] = {}
    counts = []
    for kept in held:
        assert kept is not None
        x, y = kept.take(np.arange(len(kept)))
        counts.append(len(y))
        for number, model in weights.items():
            logits = x.reshape(len(x), -1) @ model["head.weight"].T + model["head.bias"]
            hits.setdefault(number, []).append(int((logits.argmax(1) == y).sum()))
    assert found == [
        (number, "global", pytest.approx(sum(mine) / sum(counts)), sum(counts), 2)
        for number, mine in hits.items()
    ]
    assert each == [
        (number, seat, "devices", counts[seat], pytest.approx(mine[seat] / counts[seat]))
        for number, mine in hits.items()
        for seat in (0, 1)
    ]


@pytest.mark.long
def test_a_killed_server_and_a_killed_client_change_neither_bits_nor_the_word_of_the_devices(
    tmp_path: Path,
) -> None:
    """A regression without data on the server, cut off twice, with top-k, whose residual is a state."""
    draw = np.random.default_rng(3)
    for number in (0, 1):
        x = draw.normal(size=(200, 4)).astype(np.float32)
        np.savez(tmp_path / f"c{number}.npz", x=x, y=x @ np.array([1, -2, 3, 0.5], np.float32))
    asked = ("--task=regression", "--input-shape=4", "--classes=1", "--model=mlp", "--codec=topk:0.2")
    found = []
    for cut in (False, True):
        (tmp_path / str(cut)).mkdir()
        with processes.flock(tmp_path / str(cut)) as flock:
            data = [f"--data={tmp_path}/c{number}.npz" for number in (0, 1)]
            server = flock.server("--clients=2", "--rounds=12", "--steps=200", "--stop-after=9", *asked)
            clients = [flock.client(f"c{number}", data[number], "--hold-out=0.3") for number in (0, 1)]
            if cut:
                server.wait_for("round_committed", round=3)
                server.kill()
                clients[1].kill()
                server = flock.server()
                clients[1] = flock.client("c1", data[1], "--hold-out=0.3")
            assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
            rows = flock.rows("SELECT round, model, value, loss, others FROM evaluations ORDER BY round")
            found.append((rows, (flock.run_dir / "model.safetensors").read_bytes()))
    assert len(found[0][0]) == 12
    assert found[0] == found[1]
