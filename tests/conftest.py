"""Every test runs with the signals of a terminal, however pytest was started."""

from __future__ import annotations

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and every process of a test inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
