"""Buffers of a training step, as large as they get, are served from pages that stay."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, threading
from edgeflock.common.allocator import keep_pages
keep_pages()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for step in range(25):
        if step == 5:
            before = faults()
        held = [bytes([1]) * (size << 20) for size in (1, 6, 12, 30)]
        del held
    print((faults() - before) / 20)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told")
def test_a_step_s_buffers_are_not_faulted_in_anew_in_the_thread_that_trains() -> None:
    """49 MiB are 12,544 pages; mapped anew those of 6 MiB and more would be 12,288 faults a step."""
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1000
