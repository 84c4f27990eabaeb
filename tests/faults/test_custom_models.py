"""Models of a user's own in real runs: what they keep in buffers, and what they raise."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from edgeflock.lab.report import exam
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.start.build import build_net
from edgeflock.server.start.samples import load_test_set
from support.custom_models import masked
from support.processes import Flock

RUN = ("--clients=2", "--rounds=3", "--seed=5", "--deadline=60", "--dataset=digits")


@pytest.mark.parametrize("name", ["masked", "initialised", "shared"])
def test_the_models_buffers_are_the_same_whoever_hosts_its_clients(flock: Flock, name: str) -> None:
    """A mask of minus infinity among them, which no mean survives."""
    model = f"--model=support.custom_models:{name}"
    digests = []
    for hosts in (["c0,c1"], ["c0", "c1"]):
        flock.folder.joinpath(str(len(hosts))).mkdir()
        made = Flock(flock.folder / str(len(hosts)), flock.programs)
        server = made.server(*RUN, model)
        started = [server, *(made.client(ids, model) for ids in hosts)]
        ends = [program.ended(30) for program in started]
        assert ends == [0] * len(ends)
        digests.append(made.sha256())
    assert len(set(digests)) == 1
    assert name != "masked" or server.events("buffers", stay=["mask", "table", "window"])
    if name == "masked":  # PyTorch takes the file as it is, and so does a report of a round's
        masked((1, 8, 8), 10).load_state_dict(load_file(made.run_dir / "model.safetensors"))
        (made.run_dir / "model.safetensors").unlink()
        config = from_toml(made.run_dir / "run.toml")
        net = build_net(config, load_test_set(config))
        path = made.run_dir / "rounds" / "000003" / "model.safetensors"
        exam._filled(net, exam._Weights(path, 3, load_file(path)))


@pytest.mark.parametrize("error", ["TypeError", "SystemExit"])
def test_a_test_of_the_model_and_a_training_that_raise_end_no_client(flock: Flock, error: str) -> None:
    model = ("--model=support.custom_models:touchy",)
    server = flock.server(*RUN, *model, f"--model-arg=error={error}", "--batch-size=16", "--min-updates=1")
    client = flock.client("c0,c1", *model)
    client.wait_for("task_refused", count=2)
    assert client.process.is_alive()
    assert error in client.events("task_refused")[0]["reason"]
    assert server.process.is_alive()
