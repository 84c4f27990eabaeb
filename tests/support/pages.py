"""The commands that README.md and docs/ print, and whether each is one that exists.

A fenced block without a language, or of `sh`, `bash`, `console`, may hold commands: after `$ ` if a line
begins so; in `sh` and `bash` every line; else those that begin with a program of PROGRAMS.
A comment before a block says how it is run where the page is tried: support/walkthrough.py.
"""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from edgeflock.client import cli as client
from edgeflock.common.errors import EdgeflockError
from edgeflock.lab import cli as lab
from edgeflock.server import cli as server

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BACKSLASH = "\\"
OURS = ("fl-server", "fl-client", "fl-lab")
PROGRAMS = {
    *OURS, "cd", "cp", "curl", "docker", "git", "install", "journalctl", "kill", "make", "mkdir",
    "parallel", "pip", "prometheus", "python", "python3", "scp", "sh", "source", "sqlite3", "ssh", "sudo",
    "systemctl", "tensorboard", "uv",
}  # fmt: skip
_FENCE = re.compile(r"^```(\w*)\s*$")
_RUN = re.compile(r"^<!-- run(?:: (.+?))? -->$")
_SPAN = re.compile(r"(?<!`)`((?:fl-server|fl-client|fl-lab|make|python -m edgeflock)(?: [^`]+)?)`(?!`)")
_ASSIGNED = re.compile(r"^[A-Z_]+=")
_ENDS = {";", "&&", "||", "|", "&"}


@dataclass(frozen=True)
class Said:
    """One command as a page prints it; `how` is what the comment before its block says, None without one."""

    place: str
    text: str
    how: str | None = None
    language: str = ""


def commands(page: Path) -> Iterator[Said]:
    """Yield the commands of the page's blocks in their order; a Python block that is to be run is one."""
    for number, language, how, lines in _blocks(page):
        if language == "python" and how is not None:
            yield Said(f"{page.name}:{number}", "\n".join(lines), how, language)
        elif language in ("", "sh", "bash", "console"):
            for offset, text in _lines(language, lines):
                yield Said(f"{page.name}:{number + offset}", text, how)


def mentions(page: Path) -> Iterator[Said]:
    """Yield the commands that stand within sentences and tables."""
    fenced = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fenced ^= line.startswith("```")
        if not fenced:
            yield from (Said(f"{page.name}:{number}", span) for span in _SPAN.findall(line))


def _blocks(page: Path) -> Iterator[tuple[int, str, str | None, list[str]]]:
    """Yield the first line's number, the language, how it is run, and the lines of every block."""
    language, how, block = None, None, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence, comment = _FENCE.match(line), _RUN.match(line)
        if language is None and comment:
            how = comment[1] or "here"
        elif language is None and fence:
            language, block = fence[1], []
        elif language is not None and line == "```":
            yield number - len(block), language, how, block
            language = how = None
        elif language is not None:
            block.append(line)
        elif line.strip():
            how = None  # it belongs to the block that follows at once


def _lines(language: str, block: list[str]) -> Iterator[tuple[int, str]]:
    prompted = any(line.startswith("$ ") for line in block)
    numbered = iter(enumerate(block))
    for offset, line in numbered:
        text = line.removeprefix("$ ") if prompted else line
        if prompted:
            meant = line.startswith("$ ")
        else:
            meant = bool(text.strip()) and text[0] not in " #"
            meant = meant and (language in ("sh", "bash") or _program(text) in PROGRAMS)
        while meant and _goes_on(text):
            text = f"{text.removesuffix(BACKSLASH).rstrip()} {next(numbered)[1].strip()}"
        if meant:
            yield offset, text


def _goes_on(text: str) -> bool:
    """Return whether the next line belongs to this command, too."""
    try:
        shlex.split(text, comments=True)
    except ValueError:  # an open quotation, or a backslash at the end
        return True
    return text.endswith(BACKSLASH)


def _program(text: str) -> str:
    words = itertools.dropwhile(_ASSIGNED.match, text.split())
    return next(words, "")


# ---------------------------------------------------------------------------------------- is it a command


def fault(said: Said) -> str:
    """Return what is wrong with a command as it is printed; nothing if there is such a command."""
    for words in _simple(said.text):
        program, *arguments = itertools.dropwhile(_ASSIGNED.match, words)
        if program not in PROGRAMS:
            return f"{program!r} is none of the programs that pages may name (support/pages.py)"
        if wrong := _fault(program, arguments) or _unknown_variable(program, words):
            return wrong
    return ""


def _simple(text: str) -> list[list[str]]:
    """Return the words of every simple command of a line."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&<>")
    lexer.whitespace_split = True
    groups = [list(group) for end, group in itertools.groupby(lexer, _ENDS.__contains__) if not end]
    return [list(itertools.takewhile(lambda word: word not in "<<>>", group)) for group in groups]


def _fault(program: str, arguments: list[str]) -> str:
    if program in OURS:
        return _misuse(program, arguments)
    if program == "make":
        unknown = {word for word in arguments if "=" not in word} - _targets()
        return f"the Makefile has no {', '.join(unknown)}" if unknown else ""
    if program in ("pip", "uv"):
        return _uninstallable(arguments)
    if program in ("sh", "source") and not arguments[0].startswith(".venv/"):
        return "" if (ROOT / arguments[0]).is_file() else f"there is no {arguments[0]}"
    return ""


def _misuse(program: str, arguments: list[str]) -> str:
    """Return what click has against these words; brackets, dots and bars of a synopsis are none of them."""
    plain = [word.strip("[]").partition("|")[0] for word in arguments]
    words = [word for word in (word.removesuffix("...") for word in plain) if word]
    command: click.Command = {"fl-server": server.build, "fl-client": client.build}.get(
        program, lambda: lab.group
    )()
    name = program
    if isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        try:
            command = command.get_command(click.Context(command), name) or command
        except EdgeflockError as error:
            return str(error)
    try:
        _, left, _ = command.make_parser(click.Context(command, info_name=name)).parse_args(words)
    except click.BadOptionUsage:  # its value is missing: pages name options so within sentences
        return ""
    except click.ClickException as error:
        return error.format_message()
    return f"{name} takes no {left[0]!r}" if left else ""


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _uninstallable(arguments: list[str]) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {name for word in arguments for name in re.findall(r"^\.\[(.+)\]$", word)}
    unknown = {extra for names in named for extra in names.split(",")} - set(project["optional-dependencies"])
    return f"there is no extra {', '.join(unknown)}" if unknown else ""


def _unknown_variable(program: str, words: list[str]) -> str:
    known = (ROOT / "docker-compose.yml").read_text() if program == "docker" else ""
    given = [word.partition("=")[0] for word in words if _ASSIGNED.match(word)] if known else []
    unknown = [name for name in given if not re.search(rf"\${{{name}\b", known)]
    return f"docker-compose.yml has no {', '.join(unknown)}" if unknown else ""
