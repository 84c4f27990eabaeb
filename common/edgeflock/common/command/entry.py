"""The way in and out of a command: errors become one sentence on stderr and an exit code."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import NoReturn

import click

from edgeflock.common.command import signals, streams
from edgeflock.common.command.log import debugging
from edgeflock.common.command.processor import refuse_a_torch_that_cannot_run
from edgeflock.common.command.terminal import safe
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.foreign import unforeseen

_STDERR = 2


def run_command(command: click.Command, name: str, *, parks: bool = True) -> NoReturn:
    """Run a command of that name with this process's arguments, then exit.

    `parks`: what a signal ends goes on with the next start, so it has ended well.
    """
    streams.secure()
    faulthandler.enable()  # a crash in native code leaves words, too
    signals.on_leaving(partial(_leave, name, parks))
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr are no sentences of ours
    code = _run(command, name)
    sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:  # its disk is full
        code = code or 1
    os._exit(code)  # not by way of the interpreter: gRPC's threads wait up to 20 s for a peer that is gone


def _run(command: click.Command, name: str) -> int:
    try:
        refuse_a_torch_that_cannot_run()
        code = command.main(prog_name=name, standalone_mode=False)
    except EdgeflockError as error:
        return _fail(name, str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _fail(name, _usage(error), 2)
    except (click.Abort, KeyboardInterrupt) as error:
        return _interrupted(name, error.__cause__ or error)
    except OSError as error:
        _trace()
        where = f" {error.filename!r}" if error.filename else ""
        return _fail(name, f"the system refused{where}: {error.strerror or error}", 1)
    except Exception as error:
        _trace()
        return _fail(name, _unforeseen(error), 1)
    return code if isinstance(code, int) else 0


def _interrupted(name: str, error: BaseException) -> int:
    """Say which signal it was; Ctrl-C has no number."""
    told = isinstance(error, KeyboardInterrupt) and error.args
    number = signal.Signals(error.args[0] if told else signal.SIGINT)
    return _end(f"{name}: ended by {'Ctrl-C' if number is signal.SIGINT else number.name}", 128 + number)


def _unforeseen(error: Exception) -> str:
    words = unforeseen(error)
    return f"{words} (--log-level debug shows where)" if words.startswith("this is a bug") else words


def _leave(name: str, parks: bool, number: int, frame: FrameType | None) -> NoReturn:
    """End on a signal before the daemon looks for it; process 1 of a container would not do so by itself.

    Here may be anywhere, also where an exception would be lost.
    """
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(OSError):
        os.write(_STDERR, f"{name}: ended by {signal.Signals(number).name}\n".encode())
    os._exit(0 if parks else 128 + number)


def _usage(error: click.ClickException) -> str:
    """Return click's complaint as one sentence, with the nearest name."""
    if isinstance(error, click.NoSuchOption):
        near = list(error.possibilities or ())  # the nearest first
        return f"unknown option {error.option_name}" + (
            f", did you mean {near[0]}?" if near else ", see --help"
        )
    text = error.format_message()
    return text[:1].lower() + text[1:].rstrip(".") + ", see --help"


def _fail(name: str, sentence: str, code: int) -> int:
    return _end(f"{name}: error: {safe(' '.join(sentence.split()))}", code)


def _end(words: str, code: int) -> int:
    click.echo(words, err=True)
    return code


def _trace() -> None:
    if debugging():
        traceback.print_exc()
