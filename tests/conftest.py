"""Every test runs with the signals of a terminal, however pytest was started."""

from __future__ import annotations

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and all processes of a test inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup has it ignored
