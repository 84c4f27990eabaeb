"""One change tried: made in a copy of the tree, and the tests run that reach it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.mutants.changes import Change
from support.mutants.reach import WINGS

_PASSED, _NONE_RAN = 0, 5
_OF_A_TEST_S = 60
_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "__pycache__", ".*_cache", "runs", "*.egg-info"
)


@dataclass(frozen=True)
class Tried:
    """What became of a change."""

    change: Change
    by: str  # the test that noticed it; empty: none did
    tests: int

    @property
    def killed(self) -> bool:
        return bool(self.by)


class Copy:
    """A copy of the tree, whose code every process of its tests takes before the installed one."""

    def __init__(self, root: Path, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(root, folder, ignore=_NOT_COPIED)
        self._folder = folder
        roots = [str(folder / wing) for wing in (*WINGS, "tests")]
        self._environ = {
            **os.environ,
            "PYTHONPATH": ":".join(roots),
            "PYTHONDONTWRITEBYTECODE": "1",  # a change of the same second and size would be taken for the old
            "OMP_NUM_THREADS": "1",
        }

    def tried(self, change: Change, tests: Sequence[str], limit_s: float) -> Tried:
        """Make the change and run these tests until one fails that passes without it."""
        with self._made(change):
            failed = self._first_failure(tests, limit_s)
        if failed and failed in tests and self._first_failure([failed], limit_s):
            failed = ""  # it fails without the change, too
        return Tried(change, failed, len(tests))

    @contextmanager
    def _made(self, change: Change) -> Iterator[None]:
        path = self._folder / change.path
        source = path.read_bytes()
        path.write_bytes(change.made(source))
        try:
            yield
        finally:
            path.write_bytes(source)

    def _first_failure(self, tests: Sequence[str], limit_s: float) -> str:
        """Return the first test that fails, or what else went wrong; nothing if all pass."""
        if not tests:
            return ""
        words = ("-x", "-q", "-m", "not long and not hour", "--timeout", str(_OF_A_TEST_S), "--tb=no", "-rfE")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, *tests]
        try:
            ended = subprocess.run(
                command,
                cwd=self._folder,
                env=self._environ,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "hangs"
        if ended.returncode in (_PASSED, _NONE_RAN):
            return ""
        told = [
            line.split(" ")[1] for line in ended.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))
        ]
        return told[0] if told else "breaks pytest"
