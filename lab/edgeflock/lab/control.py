"""fl-lab control: the operator's calls to a living run, at the address in its run directory."""

from __future__ import annotations

from pathlib import Path

import click
import grpc

from edgeflock.common.errors import BadValue, EdgeflockError, MissingData, UsageError
from edgeflock.v1 import aggregator_pb2, control_pb2, control_pb2_grpc

_TIMEOUT_S = 10.0


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.argument("action", type=click.Choice(["status", "pause", "resume", "stop", "release"]))
@click.option("--client", default="", metavar="ID", help="With release: who is let out of quarantine.")
@click.option(
    "--reason", default="stopped by the operator", help="With stop: why, for the journal.", show_default=True
)
def control(run: Path, action: str, client: str, reason: str) -> int:
    """Ask the server of the run directory RUN for its status, to pause, resume, stop, or release a client."""
    if (action == "release") != bool(client):
        raise UsageError("release needs --client ID, no other action takes it")
    with grpc.insecure_channel(address(run)) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        try:
            click.echo(_release(stub, client) if client else _call(stub, action, reason))
        except grpc.RpcError as error:
            raise EdgeflockError(f"the server of {run} does not answer: {_details(error)}") from None
    return 0


def address(run: Path) -> str:
    """Return where the run's operator service listens. Raises MissingData with a sentence."""
    try:
        return (run / "control").read_text("utf-8").strip()
    except OSError:
        raise MissingData(
            f"no server has written {run / 'control'}: is {run} the directory of a living run?"
        ) from None


def _call(stub: control_pb2_grpc.ControlStub, action: str, reason: str) -> str:
    match action:
        case "pause":
            stub.Pause(control_pb2.PauseRequest(), timeout=_TIMEOUT_S)
            return "paused: no new round is opened until resume"
        case "resume":
            stub.Resume(control_pb2.ResumeRequest(), timeout=_TIMEOUT_S)
            return "resumed"
        case "stop":
            stub.Stop(control_pb2.StopRequest(reason=reason), timeout=_TIMEOUT_S)
            return "stopping: the last committed model is the result"
        case _:
            return status_text(stub.Status(control_pb2.StatusRequest(), timeout=_TIMEOUT_S))


def _release(stub: control_pb2_grpc.ControlStub, client: str) -> str:
    answer = stub.Release(control_pb2.ReleaseRequest(client_id=client), timeout=_TIMEOUT_S)
    if not answer.released:
        status = stub.Status(control_pb2.StatusRequest(), timeout=_TIMEOUT_S)
        held = [member.client_id for member in status.members if member.HasField("quarantine")]
        raise BadValue("--client", client, f"an id that is in quarantine: {', '.join(held) or 'none is now'}")
    return f"{client} is out of quarantine: it takes part from the next round on"


def status_text(status: control_pb2.StatusResponse) -> str:
    """Return a status as lines for people."""
    state = aggregator_pb2.RunState.Name(status.state).removeprefix("RUN_STATE_").lower()
    because = f" ({status.reason})" if status.reason else ""
    lines = [
        f"run      {status.run_id} in {status.run_dir}",
        f"method   {status.method}",
        f"state    {state}{because}",
        f"round    {status.round} of {status.rounds}",
        f"clients  {sum(member.online for member in status.members)} online of {status.clients}",
    ]
    return "\n".join([*lines, *(_member(member) for member in status.members)])


def _member(member: control_pb2.ClientStatus) -> str:
    words = {
        "online": member.online,
        "ready": member.ready,
        "in the cohort": member.in_cohort,
        "update received": member.received,
        "task refused": member.refused,
        f"in quarantine up to round {member.quarantine.until_round}": member.HasField("quarantine"),
        f"{member.bad_updates} bad updates": bool(member.bad_updates),
        f"{member.steps_done} of {member.steps_total} steps": bool(member.steps_total),
        f"{member.cpu_s:.1f} s CPU": bool(member.cpu_s),
        f"{member.temperature_c:.0f} °C": member.HasField("temperature_c"),
        f"{member.upload_held} of {member.upload_size} bytes here": bool(member.upload_size),
    }
    place = str(member.index) if member.seated else "-"
    said = ", ".join(word for word, holds in words.items() if holds) or "away"
    return f"  {place:>4}  {member.client_id:<24} {member.samples:>8} samples  {said}"


def _details(error: grpc.RpcError) -> str:
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error)
