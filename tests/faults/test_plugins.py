"""Foreign code in real runs: a hostile server makes a device import nothing, and an own method is trained."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.wire.messages import layout_to_wire
from edgeflock.v1 import aggregator_pb2 as pb
from support.processes import Flock
from support.rehearsal import Rehearsal, Script, serving

TRAP = "from pathlib import Path\n\nPath('sprung').touch()\nMETHOD = ENTRY = SCHEME = make = None\n"
GOOD = "import os\n\nMETHOD, OTHER = 1, 2\n"
# What the server names for each client, and what that says.
ASKED: list[tuple[dict[str, Any], str]] = [
    (
        {"method": "trap:METHOD"},
        "'trap:METHOD' is code that this machine has not allowed: start with",
    ),
    ({"method": "good:OTHER"}, "'good:OTHER' is code that this machine has not allowed"),
    ({"method": "trap"}, "unknown method 'trap'"),
    (
        {"method": "lacked", "code": [{"kind": "methods", "name": "lacked"}]},
        "at the server an installed package brings it: install that here, too",
    ),
    ({"method": "..trap"}, "unknown method '..trap'"),
    ({"data": {"dataset": "trap:ENTRY"}}, "'trap:ENTRY' is code that this machine has not allowed"),
    ({"data": {"dataset": "__main__:trap"}}, "unknown data set '__main__:trap'"),
    ({"data": {"dataset": "trap"}}, "unknown data set 'trap'"),
    ({"data": {"partition": "trap:SCHEME:1"}}, "'trap:SCHEME' is code that this machine has not allowed"),
    ({"model": {"name": "trap:make"}}, "unknown model 'trap:make'"),
    ({"model": {"task": "trap:TASK"}}, "'trap:TASK' is code that this machine has not allowed"),
    ({"augment": "flip,trap:noise"}, "'trap:noise' is code that this machine has not allowed"),
    ({"model": {"name": "custom"}}, "name yours with --model"),
    (
        {"method": "good:METHOD"},
        "method good:METHOD is of the type int, wanted is edgeflock.methods",
    ),
]


class Hostile(Rehearsal):
    """Offers every client a run that is sound but for one name, and a seat so that it looks for its data."""

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:  # noqa: N802 - the wire's
        number = int(request.client_id.removeprefix("c"))
        flat = FlatModel(models.build("linear", input_shape=(1, 8, 8), classes=10, seed=7))
        spec = pb.ModelSpec(
            name="linear", input_shape=(1, 8, 8), classes=10, parameters=layout_to_wire(flat.layout)
        )
        data = pb.DataSpec(dataset="digits", partition="iid", shards=99)
        run = pb.Run(
            run_id=f"run{number}", epoch=1, seed=7, method="fedavg", model=spec, data=data, clients=99
        )
        run.MergeFrom(ParseDict(ASKED[number][0], pb.Run()))
        self.run = run
        return await super().Join(request, context)


def test_a_hostile_server_makes_a_device_import_nothing_that_it_was_not_told_to(flock: Flock) -> None:
    """The traps can be imported: they lie where the command was typed, beside code that is allowed."""
    (flock.folder / "trap.py").write_text(TRAP)
    (flock.folder / "good.py").write_text(GOOD)
    server = Hostile(Script())
    server.view = pb.View(state=pb.RUN_STATE_RUNNING, seat=pb.Seat(index=0, seats=99))

    async def tempted() -> str:
        async with serving(server) as address:
            ids = ",".join(f"c{number}" for number in range(len(ASKED)))
            place = f"--state-dir={flock.folder / 'state'}"
            given = (f"--server={address}", f"--ids={ids}", place, "--allow-code=good:METHOD")
            client = flock.start("fl-client", *given, environ={"PWD": str(flock.folder)})
            assert await asyncio.to_thread(client.ended) == 2
            return client.text

    said = asyncio.run(tempted())
    assert len(server.joins) >= len(ASKED)
    assert [words for _, words in ASKED if words not in said] == []
    assert not (flock.folder / "sprung").exists()


METHOD = """
from edgeflock.methods.kit.base import ClientHalf, Method, ServerHalf
from edgeflock.methods.kit.options import Params


class Halved(ServerHalf[Params]):
    def commit(self, state, sums, round):
        state.model.add_(sums.mean("delta"), alpha=0.5)
        return {}


METHOD = Method(name="halved", summary="half of the mean", params=Params, server=Halved, client=ClientHalf)
"""


def test_an_own_method_trains_where_its_file_lies_and_each_side_says_what_is_missing(flock: Flock) -> None:
    (flock.folder / "mine.py").write_text(METHOD)
    here = {"PYTHONPATH": "", "PWD": str(flock.folder)}
    method = "mine:METHOD"
    given = (f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", "--clients=1", "--rounds=2")
    server = flock.start("fl-server", *given, f"--method={method}", environ=here)
    server.wait_for("listening")
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / 'c0'}", "--id=c0")
    stranger = flock.start("fl-client", *place, environ=here)
    assert (stranger.ended(), f"start with --allow-code {method}" in stranger.sentence()) == (2, True)
    client = flock.start("fl-client", *place, f"--allow-code={method}", environ=here)
    assert [server.ended(), client.ended()] == [0, 0]
    assert Path(flock.run_dir / "model.safetensors").exists()


@pytest.mark.parametrize("same", [True, False])
def test_other_code_on_a_device_is_said_or_refused(flock: Flock, same: bool) -> None:
    """The device has a file of the same name, with a comment more."""
    there = flock.folder / "device"
    there.mkdir()
    (flock.folder / "mine.py").write_text(METHOD)
    (there / "mine.py").write_text(f"# halved\n{METHOD}")
    given = [f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", "--clients=1", "--rounds=1"]
    given += ["--same-code"] if same else []
    server = flock.start("fl-server", *given, "--method=mine:METHOD", environ={"PWD": str(flock.folder)})
    server.wait_for("listening")
    place = (f"--server={flock.address}", f"--state-dir={flock.folder / 'c0'}", "--id=c0")
    client = flock.start("fl-client", *place, "--allow-code=mine:METHOD", environ={"PWD": str(there)})
    words = "the code of the method mine:METHOD is "
    if same:
        assert client.ended() == 1
        assert words in client.sentence()
        assert server.events("refused")[0]["reason"] == "REASON_OTHER_CODE"
        return
    assert [server.ended(), client.ended()] == [0, 0]
    assert words in flock.announced("code_differs")[0]["reason"]
    assert words in client.events("code_differs")[0]["reason"]
