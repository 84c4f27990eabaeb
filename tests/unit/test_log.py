"""Logs: JSON lines on stderr, levels, other libraries' messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest
import structlog

from edgeflock.common.command.log import _Told

_SCRIPT = """
import logging, structlog
from edgeflock.common.command import log
log.configure({level!r}, {form!r})
structlog.get_logger().info("listening", address="127.0.0.1:1")
structlog.get_logger().debug("chunk_received", size_bytes=3)
logging.getLogger("lib").warning("hear %s", "this")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("effect_failed")
"""


def logged(level: str, form: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(level=level, form=form)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


def test_a_pipe_gets_json_lines() -> None:
    lines = [json.loads(line) for line in logged("info", "auto").splitlines()]
    assert [line["event"] for line in lines] == ["listening", "library_message", "effect_failed"]
    assert {key: lines[0][key] for key in ("level", "address")} == {"level": "info", "address": "127.0.0.1:1"}
    assert (lines[1]["library"], lines[1]["text"]) == ("lib", "hear this")
    assert "ZeroDivisionError" in lines[2]["exception"]


def test_debug_shows_more_and_error_less() -> None:
    assert "chunk_received" in logged("debug", "json")
    assert "listening" not in logged("error", "json")


def test_console_is_for_people() -> None:
    text = logged("info", "console")
    assert "listening" in text
    assert not text.startswith("{")


def test_every_line_is_told_to_people_and_one_that_cannot_be_is_logged() -> None:
    told: list[tuple[str, str, dict[str, object]]] = []

    def tell(level: str, name: str, fields: Mapping[str, object]) -> None:
        told.append((level, name, dict(fields)))
        if name == "bad":
            raise ValueError("no words for it")

    with pytest.raises(structlog.DropEvent):
        _Told(tell)(None, "info", {"event": "listening", "level": "warning", "port": 1})
    assert told == [("warning", "listening", {"port": 1})]
    with pytest.raises(structlog.DropEvent):
        _Told(tell)(None, "info", {"event": "listening"})
    assert told[1] == ("info", "listening", {})
    left = _Told(tell)(None, "info", {"event": "bad", "port": 1})
    assert left == "bad {'port': 1} (it could not be told: ValueError('no words for it'))"


def test_fl_lab_keeps_what_is_logged_apart_from_what_it_prints_and_without_colours() -> None:
    """Whatever the environment says of colours: neither stream is a terminal."""
    script = """
import structlog
from edgeflock.lab import cli
cli.group.main(["methods"], standalone_mode=False)
structlog.get_logger().warning("download_tried", name="mnist")
structlog.get_logger().info("data_read", name="mnist")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "FORCE_COLOR": "1"}
    )
    assert "warning: download tried (name=mnist)" in done.stderr
    assert "data read" not in done.stderr
    assert "download" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
