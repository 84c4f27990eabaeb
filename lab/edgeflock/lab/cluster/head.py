"""The head of a Ray cluster before it is joined: where it is, whether it answers, and whom it lets in."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click
import grpc

from edgeflock.common.errors import UsageError
from edgeflock.common.wire.address import Address, parse_address

_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"  # its answer holds the version of Ray
_VERSION = re.compile(rb"\d+\.\d+\.\d+[0-9a-z.]*")
_ANSWER_S = 10.0
_START = "start one by `ray start --head` (and `ray start --address=...` on the others)"
MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


@dataclass(frozen=True)
class Head:
    """A head that answers."""

    address: Address
    guarded: bool  # who does not know a secret is not let in

    def require_trust(self, insecure: bool) -> None:
        """Refuse one that runs whatever anybody who reaches it wants to be run."""
        if not (self.guarded or insecure or self.address.local):
            raise UsageError(
                f"the Ray at {self.address.target} takes commands from whoever reaches it: start it with a "
                f"token (`ray get-auth-token --generate`, {MODE}=token on every node), or say --insecure if "
                "every machine of that network is trusted"
            )


def find(asked: str) -> Head:
    """Return the head at an address; without one that of RAY_ADDRESS, else the one that runs here.

    Raises UsageError with a sentence if there is none, it is of another version, or asks for another token.
    """
    address = _address(asked)
    if os.environ.get("RAY_USE_TLS") == "1":  # certificates on both ends, which Ray itself looks at
        return Head(address, guarded=True)
    answer = _ask(address, "")
    if isinstance(answer, bytes):
        _require_version(address, answer)
        return Head(address, guarded=False)
    token, where = _token(address)
    answer = _ask(address, token)
    if not isinstance(answer, bytes):
        raise UsageError(f"the Ray at {address.target} does not take the token of {where}")
    _require_version(address, answer)
    os.environ.setdefault(MODE, "token")  # read when Ray is imported
    return Head(address, guarded=True)


def _address(asked: str) -> Address:
    if asked:
        return parse_address(asked, "--on ray=")
    said = os.environ.get("RAY_ADDRESS", "")
    if said and said != "auto":
        return parse_address(said, "RAY_ADDRESS")
    kept = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    try:
        return parse_address(kept.read_text("utf-8").strip(), str(kept))
    except OSError:
        raise UsageError(f"no Ray runs here: {_START}, or name one by --on ray=HOST:PORT") from None


def _ask(address: Address, token: str) -> bytes | None:
    """Return what the head answers, None if it wants a token, or another one."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with grpc.insecure_channel(address.target) as channel:
        try:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_ALIVE)
            return call(b"", timeout=_ANSWER_S, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return None
            raise UsageError(f"no Ray answers at {address.target}: {_START}") from None


def _token(address: Address) -> tuple[str, str]:
    """Return the token of this user and where it stands, as Ray finds it; its file is for nobody else."""
    if token := os.environ.get(TOKEN):
        return token, TOKEN
    path = Path(os.environ.get(TOKEN_FILE) or Path.home() / ".ray" / "auth_token")
    try:
        token = path.read_text("utf-8").strip()
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
            click.echo(f"{path} could be read by others: it is this user's alone now", err=True)
    except OSError:
        raise UsageError(
            f"the Ray at {address.target} asks for a token: copy that of its head to {path}, or set {TOKEN}"
        ) from None
    return token, str(path)


def _require_version(address: Address, answer: bytes) -> None:
    found = _VERSION.search(answer)
    there, here = found[0].decode() if found else "", version("ray")
    if there and there != here:
        raise UsageError(
            f"Ray is {there} at {address.target} and {here} here: all nodes need the same version"
        )
