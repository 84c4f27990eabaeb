"""Glances at a living run: its server's status now and then, asked for without waiting for the answer."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

import grpc

from edgeflock.common.wire.transport import MAX_STATUS, channel_options
from edgeflock.server.files import run_dir as rundir
from edgeflock.v1 import control_pb2 as pb
from edgeflock.v1 import control_pb2_grpc

_EVERY_S = 0.5
_CLIENTS_A_SECOND = 1000  # that are asked about: about many the server is asked less often
_ANSWER_S = 5.0


class Glance:
    """One question at a time. A server that does not answer is no trouble: then nothing is known."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._channel: grpc.Channel | None = None
        self._question: grpc.Future[pb.StatusResponse] | None = None
        self._next = 0.0

    def look(self) -> pb.StatusResponse | None:
        """Return an answer that has come since the last call, if one has."""
        question, now = self._question, time.monotonic()
        if question is None:
            if now >= self._next:
                self._ask()
            return None
        if not question.done():
            return None
        self._question, self._next = None, now + _EVERY_S
        if question.exception() is not None:
            return None
        status = question.result()
        self._next = now + max(_EVERY_S, len(status.members) / _CLIENTS_A_SECOND)
        return status

    def rest(self) -> None:
        """Let go of the server for a while: it waits for whoever has a connection when it closes."""
        if self._channel is not None:
            self._channel.close()
        self._channel = self._question = None
        self._next = time.monotonic() + _EVERY_S

    def _ask(self) -> None:
        if self._channel is None:
            if not (address := rundir.read_small(self._run_dir / rundir.CONTROL)):
                return
            self._channel = grpc.insecure_channel(address, options=channel_options(largest=MAX_STATUS))
        stub = control_pb2_grpc.ControlStub(self._channel)
        self._question = stub.Status.future(pb.StatusRequest(), timeout=_ANSWER_S)

    def __enter__(self) -> Glance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An interrupt within a call leaves gRPC's lock taken, at which `close` would stand for ever.
        if self._channel is not None and kind is None:
            self._channel.close()
