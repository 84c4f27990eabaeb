"""A page's commands as one script of bash, run from top to bottom as a reader would.

A command without a comment before its block is run if it is `source`, `make run` or an `fl-lab` without
placeholders (RUN, DIR, ...); what serves, joins or installs is only checked. A comment says otherwise:

    <!-- run -->              here, and its end is waited for; of a Python block, too
    <!-- run: no, REASON -->  not here
    <!-- run: background -->  started, and the script goes on; it has to end with 0 by itself
    <!-- run: 4 at once -->   each of its commands so often; then all that was started is waited for
    <!-- run: long -->        as `run`, but not in the quick walk

What changes is put in: `runs/20261118T213825Z-fedavg` is the newest run of fedavg; 9300 and 8080 are free
ports; every address is this machine's.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from support.pages import Said, commands

_PROLOGUE = """
newest() { ls -d runs/*-"$1" | tail -1; }
started=()
begin() { echo; echo "== $1"; }
check() { [ "$1" = 0 ] || { echo "FAILED with $1: $2"; exit 1; }; }
settle() { for one in "${started[@]}"; do wait "${one%% *}"; check $? "${one#* }"; done; started=(); }
"""
_PLACEHOLDER = re.compile(r"(?<![\w./=-])[A-Z]{1,}[A-Z_]*(?![\w=])|\.\.\.|[\[<]")
_RUN_DIR = re.compile(r"runs/\d{8}T\d{6}Z-([a-z]+)")


def script(page: Path, ports: tuple[int, int], *, long: bool = False) -> str:
    """Return the script; it ends with 0 if every command did, and names the one that did not."""
    lines = [_PROLOGUE]
    for said in commands(page):
        lines += _staged(said, _here(said, ports), long)
    return "\n".join([*lines, "settle", 'echo "walked to the end"', ""])


def how(said: Said) -> str:
    """Return how a command is run: no, here, long, background, or how many at once."""
    if said.how is not None:
        return said.how.partition(",")[0]
    words = shlex.split(said.text, comments=True)
    known = words[0] in ("source", "fl-lab") or words[:2] == ["make", "run"]
    return "here" if known and not any(map(_PLACEHOLDER.search, words)) else "no"


def _staged(said: Said, text: str, long: bool) -> list[str]:
    kind, name = how(said), shlex.quote(f"{said.place}: {said.text.splitlines()[0]}")
    times = re.fullmatch(r"(\d+) at once", kind)
    if kind == "no" or (kind == "long" and not long):
        return []
    if kind in ("here", "long"):
        return [f"begin {name}", f"{{ {text}\n}} </dev/null; check $? {name}"]
    if kind == "background" or times:
        start = [f'{{ {text}\n}} </dev/null & started+=("$! "{name})'] * (int(times[1]) if times else 1)
        return [f"begin {name}", *start, *(["settle"] if times else [])]
    raise ValueError(f"{said.place}: <!-- run: {said.how} --> is none of the comments that there are")


def _here(said: Said, ports: tuple[int, int]) -> str:
    """Return the command as it is typed on this machine, today."""
    if said.language == "python":
        return f"python - <<'PYTHON'\n{said.text}\nPYTHON"
    text = _RUN_DIR.sub(r'"$(newest \1)"', said.text)
    text = re.sub(r"\b192\.0\.2\.\d+\b|\b0\.0\.0\.0\b", "127.0.0.1", text)
    text = re.sub(r"\b9300\b", str(ports[0]), re.sub(r"\b8080\b", str(ports[1]), text))
    if text.startswith("fl-server") and "--listen" not in text:
        return f"FL_SERVER_LISTEN=127.0.0.1:{ports[0]} {text}"
    if text.startswith("fl-client") and "--server" not in text:
        return f"FL_CLIENT_SERVER=127.0.0.1:{ports[0]} {text}"
    return text
