"""How a program of this environment is typed where a person stands: by its name, or by its path."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def typed(program: str) -> str:
    """Return what starts that program of this environment here: `fl-lab`, or `.venv/bin/fl-lab`.

    The name alone, if the shell would find this very program by it, or if there is none to be found.
    """
    own = Path(sys.prefix, "bin", program)
    found = shutil.which(program)
    if not own.exists() or (found is not None and Path(found).samefile(own)):
        return program
    here = Path.cwd()
    return str(own.relative_to(here)) if own.is_relative_to(here) else str(own)
