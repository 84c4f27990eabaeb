"""What a process says last: every end leaves one line with its reason and an exit code that has a meaning."""

from __future__ import annotations

import json
import signal

# docs/operations.md says what each of them means
_SAID = {
    0: ("ended", "parked", "run_is_over"),
    130: ("ended",),
    143: ("ended",),
}
_SENTENCES = {0: " ended by SIG", 130: " ended by Ctrl-C", 1: " error: ", 2: " error: "}


def silent(name: str, text: str, code: int) -> str:
    """Return what is wrong with that end, or nothing; nobody has a last word under kill -9."""
    last = text.rstrip("\n").rpartition("\n")[2]
    if code == -signal.SIGKILL or _is_sentence(name, last, code) or _is_event(last, code):
        return ""
    return f"{name} ended with exit code {code}, and its last line gives no reason for that: {last[-500:]!r}"


def _is_sentence(name: str, last: str, code: int) -> bool:
    words = _SENTENCES.get(code)
    return words is not None and last.startswith(f"{name}:{words}")


def _is_event(last: str, code: int) -> bool:
    if not last.startswith("{"):
        return False
    entry = json.loads(last)
    return entry["event"] in _SAID.get(code, ()) and bool(entry.get("reason"))
