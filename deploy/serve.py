"""Starts fl-server where an engine restarts what fails: a server that was killed comes back.

One that has failed by itself does not try again before the next `docker compose up`, which removes the note.

    serve.py NOTE [FLAGS OF fl-server]
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


def _listen() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def main(note: Path, *flags: str) -> int:
    """Return the server's exit code, also of the life before if that failed."""
    if note.exists():
        return int(note.read_text())
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # a word that comes too early waits for the server
    server = subprocess.Popen(["fl-server", *flags], preexec_fn=_listen)

    def pass_on(number: int, frame: FrameType | None) -> None:
        server.send_signal(number)

    for number in STOPPING:
        signal.signal(number, pass_on)
    _listen()
    code = server.wait()
    if code > 0:
        note.write_text(str(code))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
