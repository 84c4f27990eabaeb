"""A run started from Python: `fl-lab run` as a process of its own, so that a notebook stays as it is."""

from __future__ import annotations

import difflib
import inspect
import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Real
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgeflock.common import listing
from edgeflock.common.command import flags
from edgeflock.common.command.kinds import PAIRS
from edgeflock.common.command.options import Option, public
from edgeflock.common.errors import BadValue, EdgeflockError, UsageError
from edgeflock.lab.notebook.run import Run
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig, default_run_dir
from edgeflock.server.files.run_dir import RUN_TOML

if TYPE_CHECKING:
    from typing import Unpack

    from edgeflock.lab.notebook.options import Options

# It ends with whoever asked for it, even if that is killed; what it imports is what is installed.
_ENTRY = (
    "from edgeflock.lab.becoming import die_with_parent as d; d(); from edgeflock.lab.cli import main; main()"
)
_ERROR = re.compile(r"fl-lab: error: (.+)")
_PATIENCE_S = 90.0  # for processes that have a bound of their own to end in good order
_USAGE = 2  # the exit code of a command that was asked for what is wrong
_CONFIG = "config"  # the file of options, which is no option itself


class Unfinished(EdgeflockError):
    """A run that was started from Python has not come to its end."""


def simulate(*, progress: bool = True, **options: Unpack[Options]) -> Run:
    """Hold a run on this machine, a server and its clients as real processes, and return it when it is over.

    Takes every option of `fl-lab run` by its name, with underscores: `simulate(method="fedprox",
    set={"mu": 0.1}, clients=8, partition="dirichlet:0.3", rounds=50)`. With `run_dir` of a run that was
    interrupted it goes on with that. Ctrl-C, or the stop button of a notebook, ends it in good order.
    It installs no signal handlers, and may be called from any thread and beside a running event loop.
    Raises an error with a sentence for what is wrong; `progress=False` prints nothing.
    """
    given = _checked(dict(options))
    with _place(given) as run_dir:
        try:
            _hold([*_arguments({**given, "run_dir": run_dir})], progress=progress)
        except KeyboardInterrupt:
            if progress and (run_dir / RUN_TOML).exists():
                print(f"interrupted: simulate(run_dir={str(run_dir)!r}) goes on with it")
            raise
    return Run(run_dir)


# ------------------------------------------------------------------------------------- what is asked for


def _entries() -> dict[str, Option]:
    return {entry.name: entry for kind in (ServerConfig, LabConfig) for entry in public(kind)}


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as their fields hold them. Raises UsageError with a sentence."""
    known = _entries()
    for name in options:
        if name not in known and name != _CONFIG:
            raise UsageError(_unknown(name, known))
    return {
        name: os.fspath(value) if name == _CONFIG else _read(known[name], value)
        for name, value in options.items()
        if value is not None
    }


def _unknown(name: str, known: Mapping[str, Option]) -> str:
    if listing.is_option(name):
        return f"unknown option {name}, an option of a method: give set={{{name!r}: ...}}"
    near = difflib.get_close_matches(name, [*known, _CONFIG], n=1, cutoff=0.5)
    return f"unknown option {name}, " + (
        f"did you mean {near[0]}?" if near else "fl-lab run --help lists them"
    )


def _read(entry: Option, value: Any) -> Any:
    """Return a value as the option's field holds it."""
    if isinstance(value, Mapping):
        if entry.kind is not PAIRS:
            raise BadValue(entry.name, value, entry.words)
        return {str(key): _text(f"{entry.name}[{key!r}]", one) for key, one in value.items()}
    return entry.read(_text(entry.name, value), entry.name)


def _text(name: str, value: Any) -> str:
    """Return a value as a flag would carry it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(_text(name, one) for one in value)
    if isinstance(value, (str, Real, os.PathLike)):
        return str(value)
    raise BadValue(name, value, "a text, a number or a path: server and clients are processes of their own")


def _arguments(given: Mapping[str, Any]) -> Iterator[str]:
    if _CONFIG in given:
        yield f"--config={given[_CONFIG]}"
    for kind in (ServerConfig, LabConfig):
        yield from flags.to_arguments(kind, given)


@contextmanager
def _place(given: Mapping[str, Any]) -> Iterator[Path]:
    """Give the run directory that was asked for, or one that nobody else has, which goes again if unused."""
    if "run_dir" in given:
        yield given["run_dir"]
        return
    wanted = default_run_dir(given.get("method", "fedavg"))
    ours = [path for path in wanted.parents if not path.exists()]
    made = _reserved(wanted)
    try:
        yield made
    finally:
        with suppress(OSError):  # the run is in it
            for path in (made, *ours):
                path.rmdir()


def _reserved(wanted: Path) -> Path:
    """Make that directory, or one with a number where somebody else has begun in the same second."""
    for number in itertools.count(1):
        place = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"run_dir {str(place)!r} cannot be made: {error.strerror}") from None
        return place
    raise AssertionError  # there is no last number


# ---------------------------------------------------------------------------------------- what is done


def _hold(arguments: list[str], *, progress: bool) -> None:
    """Run `fl-lab run` to its end, and show what it says; an interrupt lets it end its processes first."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _ENTRY, "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            encoding="utf-8",
            errors="replace",
            process_group=0,  # an interrupt reaches whoever asked, who tells this in time
        )
        with process:
            try:
                _show(process, progress=progress)
            except BaseException:
                _end(process, progress=progress)
                raise
        _conclude(process.returncode, _said(errors), progress=progress)


def _show(process: subprocess.Popen[str], *, progress: bool) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if progress:
            print(line, end="", flush=True)
    process.wait()


def _end(process: subprocess.Popen[str], *, progress: bool) -> None:
    """Let it end in good order, at once if that is interrupted, too, or takes for ever."""
    impatience = threading.Timer(_PATIENCE_S, process.kill)
    impatience.start()
    try:
        process.terminate()
        _show(process, progress=progress)
    finally:
        impatience.cancel()
        process.kill()


def _said(errors: IO[bytes]) -> list[str]:
    """Return the lines of standard error."""
    errors.seek(0)
    return errors.read().decode("utf-8", "replace").splitlines()


def _conclude(code: int, said: list[str], *, progress: bool) -> None:
    """Say what is left to say; raise the sentence of a run that did not come to its end."""
    sentences = [found[1] for line in said if (found := _ERROR.match(line))]
    if progress:
        for line in said:
            if not _ERROR.match(line):
                print(line)
    if code == _USAGE and sentences:
        raise UsageError(_named(sentences[-1]))
    if code:
        raise Unfinished(sentences[-1] if sentences else f"the run ended with exit code {code}")


def _named(sentence: str) -> str:
    """Return a refusal with the option at its beginning as it is called here."""
    flag, space, rest = sentence.partition(" ")
    name = flag.removeprefix("--").replace("-", "_")
    return f"{name}{space}{rest}" if flag.startswith("--") and name in _entries() else sentence


def _signature() -> inspect.Signature:
    """Return what an editor that asks at run time is shown: every option by its name, with its default."""
    kind = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter("progress", kind, default=True)]
    asked = [inspect.Parameter(entry.name, kind, default=entry.default) for entry in _entries().values()]
    return inspect.Signature([*own, *asked], return_annotation=Run)


simulate.__dict__["__signature__"] = _signature()
