"""The dashboard's process: started with a bound socket, gone when its standard input ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import time
from pathlib import Path

from aiohttp import web

from edgeflock.common.command import log, streams
from edgeflock.server.web.live import Live
from edgeflock.server.web.metrics import Metrics
from edgeflock.server.web.pages import Pages
from edgeflock.server.web.picture import Picture

_KINDER = 5  # the run comes first
_GRACE_S = 0.5  # for questions and answers at the end


def main() -> None:
    """Serve until the parent closes the pipe, or is gone."""
    streams.secure()
    asked = _arguments()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    log.configure(asked.log_level, asked.log_format)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # senseless requests are answered
    with contextlib.suppress(OSError):
        os.nice(_KINDER)
    asyncio.run(serve(asked))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "edgeflock.server.web", description="Started by --dashboard and fl-lab dashboard."
    )
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--descriptor", type=int, required=True)
    parser.add_argument("--server", type=int, metavar="PID", help="The server, if it is known which.")
    parser.add_argument("--metrics-clients", type=int, default=100)
    parser.add_argument(
        "--host", action="append", default=[], help="Answer to this name, too; * for every one."
    )
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="auto")
    return parser.parse_args()


async def serve(asked: argparse.Namespace) -> None:
    """Show the run of that directory on that socket."""
    picture = Picture()
    live = Live(asked.run_dir, picture, asked.server)
    pages = Pages(live, asked.run_dir, Metrics(picture, asked.server, asked.metrics_clients))
    runner = web.AppRunner(
        pages.application(None if "*" in asked.host else frozenset(asked.host)), access_log=None
    )
    gone = _end_of_input()
    looking = asyncio.create_task(live.run())
    await runner.setup()
    await web.SockSite(runner, socket.socket(fileno=asked.descriptor), shutdown_timeout=_GRACE_S).start()
    await asyncio.wait({gone, looking}, return_when=asyncio.FIRST_COMPLETED)
    live.stop()
    await looking  # raises what has ended it, if it did not end for that; a server starts this process again
    if await pages.streams.leave() and picture.over:
        await asyncio.sleep(_GRACE_S)  # a page may ask for the newest round once it knows of the end
    if asked.server is not None and picture.over:  # else it goes because it was told to
        await pages.scrapes.once_more(time.monotonic())
    await runner.cleanup()
    await live.close()


def _end_of_input() -> asyncio.Future[None]:
    """Return what is done when the parent has closed its end of the pipe, willingly or not."""
    loop = asyncio.get_running_loop()
    gone = loop.create_future()

    def readable() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            gone.set_result(None)

    loop.add_reader(0, readable)
    return gone


if __name__ == "__main__":
    main()
