"""A process's calls that change files, with their data: recorded by strace, parsed to values in order."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.processes import Program, until

CALLS = (
    "open,openat,creat,close,dup,dup2,write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,"
    "fsync,fdatasync,sync_file_range,sync,syncfs,ftruncate,truncate,fallocate,"
    "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat"
)
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_RESULT = re.compile(r"(.*)\) += (-?\d+)( .*)?")
_UNFINISHED = " <unfinished ...>"
_ARGUMENT = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|[^,\s]+')

Argument = int | bytes | str


@dataclass(frozen=True)
class Call:
    """One call that succeeded; `begun` instead, if it is a flush that has only begun."""

    thread: int
    name: str
    arguments: tuple[Argument, ...]
    result: int = 0
    begun: bool = False


class Recorder:
    """strace on a program that waits at its gate; the calls can be read when the program is dead."""

    def __init__(self, program: Program, gate: Path) -> None:
        self._file = gate.with_suffix(".calls")
        words = ["strace", "-f", "-qq", "-xx", "-s", "100000000", "-e", "signal=none"]
        words += ["-e", f"trace={CALLS}", "-o", str(self._file), "-p", str(program.process.pid)]
        self._strace = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        status = Path(f"/proc/{program.process.pid}/status")
        until(lambda: "TracerPid:\t0\n" not in status.read_text() or None, lambda: "strace to trace")
        gate.touch()

    def calls(self) -> list[Call]:
        """Wait for the end and return what was done."""
        self._strace.wait(20)
        return list(parse(self._file.read_text("ascii")))


def parse(text: str) -> Iterator[Call]:
    """Give the calls that succeeded, each when it had returned; a flush also when it began."""
    begun: dict[int, str] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:  # the end of a process
            continue
        thread, name = int(found[1]), found[2] or found[3]
        rest = begun.pop(thread, "") + found[4] if found[2] else found[4]
        if found[3] and name in ("fsync", "fdatasync"):
            yield Call(thread, name, (int(re.split(r"\D", rest)[0]),), begun=True)
        if rest.endswith(_UNFINISHED):
            begun[thread] = rest.removesuffix(_UNFINISHED)
        elif (done := _RESULT.fullmatch(rest)) and int(done[2]) >= 0:
            yield Call(thread, name, tuple(map(_value, _ARGUMENT.findall(done[1]))), int(done[2]))


def _value(text: str) -> Argument:
    if text.startswith('"'):
        return bytes.fromhex(text.strip('"').replace("\\x", ""))
    try:
        return int(text, 0)
    except ValueError:
        return text
