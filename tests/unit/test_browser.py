"""Pages opened in a browser: what is said with and without one."""

from __future__ import annotations

import webbrowser

import pytest

from edgeflock.lab.report import browser


@pytest.mark.parametrize(
    ("environ", "system", "there"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"BROWSER": "firefox"}, "linux", True),
        ({}, "darwin", True),
    ],
)
def test_a_browser_needs_a_display(environ: dict[str, str], system: str, there: bool) -> None:
    assert browser.has_display(environ, system) == there


def test_without_a_display_the_address_is_said_and_no_browser_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "has_display", lambda *_: False)
    monkeypatch.setattr(webbrowser, "open", pytest.fail)
    assert browser.show("file:///a") == (
        "no browser was opened, there is no display here; the page is file:///a"
    )


def test_with_one_the_page_is_opened_and_its_address_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "has_display", lambda *_: True)
    monkeypatch.setattr(webbrowser, "open", lambda address: address == "file:///a")
    assert browser.show("file:///a") == "opened in the browser: file:///a"


def test_a_browser_that_does_not_come_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "has_display", lambda *_: True)
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert browser.show("file:///a") == "no browser was found; the page is file:///a"
