"""Click commands made from configurations: grouped help with defaults, and the values that were given."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from edgeflock.common.command.kinds import FLAG, PAIRS, PATH, PEM
from edgeflock.common.command.options import Option, gather, public, shown_default
from edgeflock.common.errors import UsageError

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass(frozen=True)
class Guide:
    """What a command says first, and of a flag that it does not know."""

    examples: tuple[tuple[str, str], ...]  # what for, and the line to type
    first: tuple[str, ...]  # the options that matter most, by name
    explain: Callable[[list[str], str], str] = lambda arguments, flag: ""  # what was meant, or nothing


class GroupedOption(click.Option):
    """An option that knows the heading it stands under, and what a shell may complete it to."""

    def __init__(self, *args: Any, group: str, entry: Option | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.entry = entry

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        entry = self.entry
        if entry is None:
            return super().shell_complete(ctx, incomplete)
        if entry.kind in (PATH, PEM):
            return [CompletionItem(incomplete, type="dir" if entry.metavar == "DIR" else "file")]
        names = entry.choices() if entry.choices else entry.allowed.names if entry.allowed else ()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class GroupedCommand(click.Command):
    """A command whose help begins with examples and puts options under headings."""

    def __init__(self, *args: Any, guide: Guide, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.guide = guide

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if meant := self.guide.explain(given, error.option_name):
                raise UsageError(f"unknown option {error.option_name}, {meant}") from None
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for words, line in self.guide.examples:
                formatter.write(f"{'':{formatter.current_indent}}# {words}\n")
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"What matters most": []}
        for parameter in sorted(self.get_params(ctx), key=self._place):
            group = "What matters most" if parameter.name in self.guide.first else _group(parameter)
            if record := parameter.get_help_record(ctx):
                groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records, col_max=34)

    def _place(self, parameter: click.Parameter) -> int:
        first = self.guide.first
        return first.index(parameter.name) if parameter.name in first else len(first)


def _group(parameter: click.Parameter) -> str:
    return getattr(parameter, "group", "Other")


def command(
    name: str,
    help: str,
    sources: Mapping[Any, str],
    run: Callable[..., int],
    guide: Guide,
    extra: tuple[click.Option, ...] = (),
) -> click.Command:
    """Return the command whose options are the fields of configuration classes, each with a prefix.

    `run` gets one dict of given values per class, then the extra options by name, and returns the exit code.
    A `--config` file belongs to the first class.
    """
    first, prefix = next(iter(sources.items()))

    def callback(config: Path | None, **flags: Any) -> int:
        file = config or (Path(text) if (text := os.environ.get(f"{prefix}_CONFIG")) else None)
        given = [
            gather(kind, flags, os.environ, variables, file if kind is first else None)
            for kind, variables in sources.items()
        ]
        return run(*given, **{option.name: flags[option.name] for option in extra if option.name})

    parameters: list[click.Parameter] = [_option(entry) for kind in sources for entry in public(kind)]
    parameters += [_config_option(prefix), *extra, _version_option()]
    epilog = f"Every option is also a variable, such as {prefix}_LOG_LEVEL, and a key of the --config file."
    return GroupedCommand(
        name,
        params=parameters,
        callback=callback,
        help=help,
        guide=guide,
        epilog=epilog,
        context_settings=_SETTINGS,
    )


def _option(entry: Option) -> GroupedOption:
    names = [f"{entry.flag}/--no-{entry.flag[2:]}"] if entry.kind is FLAG else [entry.flag]
    given: dict[str, Any] = (
        {"default": None} if entry.kind is FLAG else {"type": str, "metavar": entry.metavar}
    )
    return GroupedOption(
        [*names, entry.name],
        group=entry.group,
        entry=entry,
        help=f"{entry.help}  [default: {shown_default(entry)}]",
        multiple=entry.kind is PAIRS,
        **given,
    )


def _config_option(prefix: str) -> GroupedOption:
    return GroupedOption(
        ["--config"],
        group="Files and logs",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"TOML file of options; variables ({prefix}_...) and flags win over it",
    )


def _version_option() -> click.Option:
    def show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from importlib.metadata import version

            click.echo(f"{ctx.find_root().info_name} {version('edgeflock')}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and exit.",
    )


def to_arguments(config: Any, given: Mapping[str, Any]) -> list[str]:
    """Return given values as the flags that say them."""
    arguments: list[str] = []
    for entry in public(config):
        if entry.name not in given:
            continue
        value = given[entry.name]
        if entry.kind is PAIRS:
            arguments += [f"{entry.flag}={key}={text}" for key, text in value.items()]
        elif entry.kind is FLAG:
            arguments.append(entry.flag if value else f"--no-{entry.flag[2:]}")
        elif value is not None:
            text = ",".join(value) if isinstance(value, tuple) else value
            arguments.append(f"{entry.flag}={text}")
    return arguments
