"""The operator beside a flock: asks its server, as fl-lab control does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from edgeflock.lab.operate.control import address
from edgeflock.v1 import control_pb2, control_pb2_grpc
from support.processes import Flock

_TIMEOUT_S = 10.0


@contextmanager
def _operator(flock: Flock) -> Iterator[control_pb2_grpc.ControlStub]:
    with grpc.insecure_channel(address(flock.run_dir)) as channel:
        yield control_pb2_grpc.ControlStub(channel)


def status(flock: Flock) -> control_pb2.StatusResponse:
    with _operator(flock) as stub:
        return stub.Status(control_pb2.StatusRequest(), timeout=_TIMEOUT_S)


def pause(flock: Flock) -> None:
    with _operator(flock) as stub:
        stub.Pause(control_pb2.PauseRequest(), timeout=_TIMEOUT_S)


def resume(flock: Flock) -> None:
    with _operator(flock) as stub:
        stub.Resume(control_pb2.ResumeRequest(), timeout=_TIMEOUT_S)


def stop(flock: Flock, reason: str) -> None:
    with _operator(flock) as stub:
        stub.Stop(control_pb2.StopRequest(reason=reason), timeout=_TIMEOUT_S)


def change(flock: Flock, **asked: Any) -> str:
    """Change the roster; return why it was not."""
    with _operator(flock) as stub:
        request = control_pb2.ChangeRosterRequest(**asked)
        return stub.ChangeRoster(request, timeout=_TIMEOUT_S).fault
