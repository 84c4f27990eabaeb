"""Refuses an installation for a 32-bit Python in a sentence: there is no torch for it.

A build hook of hatchling: pip runs it on the sources before it looks for dependencies, and misses torch.
"""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WordSize(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # Not the machine's name: a 32-bit Raspberry Pi OS runs on a 64-bit kernel.
        if sys.maxsize < 2**32:
            raise SystemExit(
                "edgeflock needs a 64-bit Python, this one has 32 bits and there is no torch for it;"
                " on a Raspberry Pi 3, 4, 5 or Zero 2 W install the 64-bit Raspberry Pi OS"
            )
