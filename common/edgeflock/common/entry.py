"""The way in and out of a command: errors become one sentence on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click

from edgeflock.common.errors import EdgeflockError
from edgeflock.common.log import debugging

_INTERRUPTED = 130


def run_command(command: click.Command, name: str) -> NoReturn:
    """Run a command of that name with this process's arguments, then exit."""
    signal.signal(signal.SIGTERM, _leave)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr are no sentences of ours
    try:
        code = command.main(prog_name=name, standalone_mode=False)
    except EdgeflockError as error:
        _fail(name, str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(name, _usage(error), 2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output is gone; the interpreter must not fail on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _trace()
        where = f" {error.filename!r}" if error.filename else ""
        _fail(name, f"the system refused{where}: {error.strerror or error}", 1)
    except Exception as error:
        _trace()
        _fail(name, f"this is a bug, {type(error).__name__}: {error} (--log-level debug shows where)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End on a SIGTERM before the daemon looks for it; process 1 of a container would not do so by itself."""
    sys.exit(0)


def _usage(error: click.ClickException) -> str:
    """Return click's complaint as one sentence, with the nearest name."""
    if isinstance(error, click.NoSuchOption):
        near = list(error.possibilities or ())  # the nearest first
        return f"unknown option {error.option_name}" + (
            f", did you mean {near[0]}?" if near else ", see --help"
        )
    text = error.format_message()
    return text[:1].lower() + text[1:].rstrip(".") + ", see --help"


def _fail(name: str, sentence: str, code: int) -> NoReturn:
    click.echo(f"{name}: error: {' '.join(sentence.split())}", err=True)
    sys.exit(code)


def _trace() -> None:
    if debugging():
        traceback.print_exc()
