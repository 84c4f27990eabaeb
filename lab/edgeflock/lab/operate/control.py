"""fl-lab control: the operator's calls to a run's server, and the status of a run that has none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import grpc

from edgeflock.common.command.crowd import everybody
from edgeflock.common.command.terminal import safe
from edgeflock.common.command.units import decimals
from edgeflock.common.errors import BadValue, EdgeflockError, UsageError
from edgeflock.common.wire.transport import MAX_STATUS, channel_options
from edgeflock.lab import history
from edgeflock.lab.operate import at_rest
from edgeflock.lab.operate.roll import Present, called
from edgeflock.server.files import run_dir
from edgeflock.v1 import aggregator_pb2, control_pb2, control_pb2_grpc

STOPPED = "stopped by the operator"
_TIMEOUT_S = 10.0
_OF_CLIENTS = ("release", "add", "drop", "replace")


@dataclass(frozen=True)
class Named:
    """Whom an action is about."""

    client: str = ""
    by: str = ""  # who has its seat from now on


NOBODY = Named()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.argument("action", type=click.Choice(["status", "pause", "resume", "stop", *_OF_CLIENTS]))
@click.option(
    "--client",
    default="",
    metavar="ID",
    help="Who is let out of quarantine (release), gets a seat (add), loses it (drop) or has it until now "
    "(replace).",
)
@click.option("--by", default="", metavar="ID", help="With replace: who has the seat from now on.")
@click.option("--reason", default=STOPPED, help="With stop: why, for the journal.", show_default=True)
@click.option(
    "--find", default="", metavar="ID", help="With status: only clients whose id holds this, of however many."
)
def control(run: Path, action: str, client: str, by: str, reason: str, find: str) -> int:
    """Ask the server of the run directory RUN for its status, to pause, resume or stop; to release a client
    from quarantine; to add or drop one, or replace it.

    The status of a run without a server is that of its journal.
    """
    if (action in _OF_CLIENTS) != bool(client):
        raise UsageError(f"{', '.join(_OF_CLIENTS)} need --client ID, no other action takes it")
    if (action == "replace") != bool(by):
        raise UsageError("replace needs --by ID, no other action takes it")
    if find and action != "status":
        raise UsageError("--find goes with status")
    if reason != STOPPED and action != "stop":
        raise UsageError("--reason goes with stop")
    click.echo(told(run, action, Named(client, by), reason=reason, find=find))
    return 0


def told(run: Path, action: str, named: Named = NOBODY, *, reason: str = STOPPED, find: str = "") -> str:
    """Return what comes of an action; raises EdgeflockError with the reason if nothing can."""
    try:
        return _asked(run, action, named, reason, find)
    except grpc.RpcError as error:
        return _without_server(run, action, f"does not answer: {_details(error)}", find)


def _asked(run: Path, action: str, named: Named, reason: str, find: str) -> str:
    """Return the server's answer. Raises grpc.RpcError if there is none."""
    where = address(run)
    if not where:
        return _without_server(run, action, "is only just starting, or going: ask again in a moment", find)
    with grpc.insecure_channel(where, options=channel_options(largest=MAX_STATUS)) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        status = stub.Status(control_pb2.StatusRequest(), timeout=_TIMEOUT_S)
        if action == "status":
            return status_text(status, find)
        if status.state == aggregator_pb2.RUN_STATE_FINISHED:
            raise _over(run, action, status.reason)
        if action == "release":
            return _release(stub, named.client)
        return _change(stub, action, named) if named.client else _call(stub, action, reason)


def address(run: Path) -> str:
    """Return where the run's operator service listens, or nothing if there is none."""
    return run_dir.read_small(run / run_dir.CONTROL)


def _without_server(run: Path, action: str, trouble: str, find: str = "") -> str:
    """Return the status of a run that nobody serves; raises what keeps anything else from being done."""
    if run_dir.is_served(run):
        raise EdgeflockError(f"the server of {run} {trouble}")
    found = history.read(run)
    if found.ending is None:
        if action == "status":
            click.echo(at_rest.words(found, find))
        going_on = at_rest.how_to_go_on(run)
        raise EdgeflockError(f"the server of {run} is not running: {going_on} goes on with the run")
    if action != "status":
        raise _over(run, action, at_rest.ending(found))
    return at_rest.words(found, find)


def _over(run: Path, action: str, how: str) -> EdgeflockError:
    return UsageError(f"{run} is over ({how}): {action} needs a run that goes on")


def _call(stub: control_pb2_grpc.ControlStub, action: str, reason: str) -> str:
    match action:
        case "pause":
            stub.Pause(control_pb2.PauseRequest(), timeout=_TIMEOUT_S)
            return "paused: no new round is opened until resume"
        case "resume":
            stub.Resume(control_pb2.ResumeRequest(), timeout=_TIMEOUT_S)
            return "resumed"
        case _:
            stub.Stop(control_pb2.StopRequest(reason=reason), timeout=_TIMEOUT_S)
            return "stopping: the last committed model is the result"


def _release(stub: control_pb2_grpc.ControlStub, client: str) -> str:
    answer = stub.Release(control_pb2.ReleaseRequest(client_id=client), timeout=_TIMEOUT_S)
    if not answer.released:
        status = stub.Status(control_pb2.StatusRequest(), timeout=_TIMEOUT_S)
        held = [member.client_id for member in status.members if member.HasField("quarantine")]
        raise BadValue("--client", client, f"an id that is in quarantine: {everybody(held) or 'none is now'}")
    return f"{client} is out of quarantine: it takes part from the next round on"


def _change(stub: control_pb2_grpc.ControlStub, action: str, named: Named) -> str:
    client, by = named.client, named.by
    request, done = control_pb2.ChangeRosterRequest(), ""
    match action:
        case "add":
            request.add, done = client, f"{client} has a seat"
        case "drop":
            request.drop, done = client, f"{client} is dropped, its seat is vacant"
        case _:
            request.replace.client_id, request.replace.by = client, by
            done = f"{by} has the seat of {client}"
    if fault := stub.ChangeRoster(request, timeout=_TIMEOUT_S).fault:
        raise UsageError(safe(fault))
    return done


def status_text(status: control_pb2.StatusResponse, find: str = "") -> str:
    """Return a status as lines for people; of clients those whose id holds `find`."""
    state = aggregator_pb2.RunState.Name(status.state).removeprefix("RUN_STATE_").lower()
    because = f" ({safe(status.reason)})" if status.reason else ""
    lines = [
        f"run      {status.run_id} in {status.run_dir}",
        f"method   {status.method}",
        f"state    {state}{because}",
        f"round    {status.round} of {status.rounds}",
        f"clients  {sum(member.online for member in status.members)} online of {status.clients}",
    ]
    return "\n".join([*lines, *called([*map(_present, status.members)], find, "away")])


def _present(member: control_pb2.ClientStatus) -> Present:
    held = member.HasField("quarantine")
    is_so = {
        "online": member.online,
        "ready": member.ready,
        "in the cohort": member.in_cohort,
        "update received": member.received,
        "task refused": member.refused,
    }
    so_far = {
        f"in quarantine up to round {member.quarantine.until_round}": held,
        f"{member.bad_updates} bad updates": bool(member.bad_updates),
        f"{member.steps_done} of {member.steps_total} steps": bool(member.steps_total),
        f"{decimals(member.cpu_s, 1)} s CPU": bool(member.cpu_s),
        f"{member.temperature_c:.0f} °C": member.HasField("temperature_c"),
        f"{member.upload_held} of {member.upload_size} bytes here": bool(member.upload_size),
    }
    awaited = member.in_cohort and not member.received
    device = {fact: getattr(member.device, fact) for fact in ("machine", "torch")}
    return Present(
        member.client_id,
        member.index if member.seated else None,
        member.samples,
        [word for word, holds in {**is_so, **so_far}.items() if holds],
        {**is_so, "in quarantine": held, "bad updates": member.bad_updates},
        concern=8 * held + 4 * member.refused + 2 * bool(member.bad_updates) + awaited,
        device={"software": member.software, **device} if member.HasField("device") else {},
    )


def _details(error: grpc.RpcError) -> str:
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error)
