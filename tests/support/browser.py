"""A real headless browser, or the reason why there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 40_000


def program() -> str:
    """Return the system's chromium; skip the test if there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(_NAMES)} is installed")
    return found


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """Start a browser with a profile of its own; yield its context."""
    api = pytest.importorskip("playwright.sync_api", reason="edgeflock[dev] is not installed: no playwright")
    path = program()
    with api.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(profile), executable_path=path, args=list(_FLAGS), headless=True
        )
        context.set_default_timeout(WAIT_MS)
        try:
            yield context
        finally:
            context.close()


class Page:
    """One open page, and everything that went wrong on it."""

    def __init__(self, context: Any, url: str) -> None:
        self.page = context.new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("console", self._console)
        self.page.goto(url)

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        lost = "ERR_" in message.text  # the server is away, which tests do on purpose
        if message.type == "error" and not lost:
            self.wrong.append(message.text)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def wait(self, condition: str, *arguments: Any) -> None:
        """Wait until the JavaScript expression holds."""
        self.page.wait_for_function(condition, arg=arguments[0] if arguments else None)
