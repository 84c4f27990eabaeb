"""Every thread that computes does it with the number of threads that was said, whatever the environment says.

All other tests run with OMP_NUM_THREADS=1, under which it could not be seen.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOTS = """
import asyncio, torch
from edgeflock.common.threads import computing
from edgeflock.server.engine.loop import Threads
torch.set_num_threads(1)
x, y = torch.randn(2, 300_000, generator=torch.Generator().manual_seed(1))
dot = lambda *_: torch.dot(x, y).item()

async def dots():
    threads = Threads()
    found = [await threads.compute(dot), await threads.prepare(dot), await threads.evaluate(dot)]
    threads.shut()
    return found

found = asyncio.run(dots())
other = computing(1, "other", 2).submit(dot).result()
print(len({dot(), *found}), other != dot())
"""


def test_the_server_s_threads_give_the_bits_of_one_thread_on_every_machine() -> None:
    environ = {**os.environ, "OMP_NUM_THREADS": "2", "MKL_DYNAMIC": "FALSE"}
    environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / wing) for wing in ("common", "server"))
    done = subprocess.run(
        [sys.executable, "-c", DOTS], env=environ, capture_output=True, text=True, check=True
    )
    one, differs = done.stdout.split()
    if differs == "False":
        pytest.skip("a dot product in two threads has the bits of one on this machine: nothing could be seen")
    assert one == "1"


def test_no_pool_is_made_elsewhere() -> None:
    made = [
        path.relative_to(ROOT).as_posix()
        for wing in ("common", "server", "client")
        for path in (ROOT / wing).rglob("*.py")
        if re.search(r"\bThreadPoolExecutor\(", path.read_text("utf-8"))
    ]
    assert made == ["common/edgeflock/common/threads.py"]
