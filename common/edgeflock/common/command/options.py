"""Options of a command: one frozen dataclass is the source of flags, variables, TOML keys, checks, tables."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.common.command.kinds import FLAG, PAIRS, SECONDS, ValueKind, allowed_words, duration
from edgeflock.common.command.ranges import Range
from edgeflock.common.errors import BadValue, UsageError


@dataclass(frozen=True)
class Option:
    """One option as every reader of it needs it."""

    name: str  # of the field
    default: Any
    kind: ValueKind
    help: str
    group: str
    allowed: Range | None
    identity: bool  # a run is another run if it differs (else operational)
    shown: str  # the default in words
    metavar: str
    table: str  # the TOML table that holds a mapping, e.g. [method]
    internal: bool  # no flag, no variable; only run.toml holds it
    nullable: bool  # None says that nothing was said
    choices: Callable[[], list[str]] | None  # what a shell may complete it to

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def variable(self, prefix: str) -> str:
        return f"{prefix}_{self.name.upper()}"

    @property
    def words(self) -> str:
        return allowed_words(self.kind, self.allowed)

    def read(self, text: str, label: str) -> Any:
        """Return the value of a text from a flag or a variable, checked."""
        try:
            return self.check(self.kind.read(text), label, text)
        except ValueError:
            raise self.refused(text, label) from None

    def refused(self, text: str, label: str) -> BadValue:
        """Return the refusal of a text; one that lacks only the single key that there is gets that."""
        key, _, _ = self.metavar.partition("=")
        said = self.metavar if text == key else f"{self.metavar}: give {self.flag} {key}={text}"
        return BadValue(label, text, said if key.islower() and "=" not in text else self.words)

    def load(self, value: Any, label: str) -> Any:
        """Return the value of a TOML entry, checked."""
        try:
            return self.check(self.kind.load(value), label, value)
        except ValueError:
            raise BadValue(label, value, self.kind.toml_words or self.words) from None

    def check(self, value: Any, label: str, given: Any = None) -> Any:
        if value is not None and self.allowed and not self.allowed.accepts(value):
            raise BadValue(label, value if given is None else given, self.words)
        return value


def option(
    default: Any,
    kind: ValueKind,
    help: str,
    *,
    group: str,
    allowed: Range | None = None,
    identity: bool = False,
    shown: str = "",
    metavar: str = "",
    table: str = "",
    internal: bool = False,
    nullable: bool = False,
    choices: Callable[[], list[str]] | None = None,
) -> Any:
    """Declare one option; use as the default of a field of a configuration."""
    about = {
        "kind": kind,
        "help": help,
        "group": group,
        "allowed": allowed,
        "identity": identity,
        "shown": shown,
        "metavar": metavar or kind.metavar,
        "table": table,
        "internal": internal,
        "nullable": nullable or default is None,
        "choices": choices,
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=about)
    return dataclasses.field(default=default, metadata=about)


def options(config: Any) -> Iterator[Option]:
    """Yield the options of a configuration class, in the order of its fields, internal ones too."""
    for field in dataclasses.fields(config):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        yield Option(name=field.name, default=default, **field.metadata)


def public(config: Any) -> list[Option]:
    return [entry for entry in options(config) if not entry.internal]


def check(config: Any) -> None:
    """Refuse any value of a configuration that is outside its range (for one that was built by hand)."""
    for entry in options(config):
        entry.check(getattr(config, entry.name), entry.flag)


def shown_default(entry: Option) -> str:
    """Return the default for people."""
    if entry.shown:
        return entry.shown
    if entry.default is None or entry.default == {} or entry.default == ():
        return "none"
    if entry.kind is FLAG:
        return "on" if entry.default else "off"
    if entry.kind is SECONDS:
        return duration(entry.default)
    return f"{entry.default:g}" if isinstance(entry.default, float) else str(entry.default)


# ------------------------------------------------------------------------------------------- the four sources


def gather(
    config: Any, flags: Mapping[str, Any], environ: Mapping[str, str], prefix: str, file: Path | None
) -> dict[str, Any]:
    """Return every value that was given, by field: flag > environment > file; mappings are merged by key.

    Raises UsageError with a sentence that says where the value stands.
    """
    given: dict[str, Any] = {}
    for values in (
        from_file(config, file),
        from_environment(config, environ, prefix),
        from_flags(config, flags),
    ):
        for name, value in values.items():
            given[name] = {**given.get(name, {}), **value} if isinstance(value, dict) else value
    return given


def from_flags(config: Any, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the flags that were given (None or () where a flag was not)."""
    values: dict[str, Any] = {}
    for entry in public(config):
        raw = flags.get(entry.name)
        if raw is None or raw == ():
            continue
        if entry.kind is PAIRS:
            values[entry.name] = _pairs(entry, raw)
        else:
            values[entry.name] = raw if entry.kind is FLAG else entry.read(raw, entry.flag)
    return values


def _pairs(entry: Option, texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, value = _one_pair(entry, text)
        if key in found:
            raise UsageError(f"{entry.flag} says {key} twice: {found[key]!r} and {value!r}")
        found[key] = value
    return found


def _one_pair(entry: Option, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise entry.refused(text, entry.flag)
    return key.strip(), value.strip()


def from_environment(config: Any, environ: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return the values of the variables `PREFIX_NAME`; an unknown one with that prefix is refused."""
    known = {entry.variable(prefix): entry for entry in public(config)}
    values: dict[str, Any] = {}
    for variable in sorted(name for name in environ if name.startswith(prefix + "_")):
        if variable == f"{prefix}_CONFIG":
            continue
        if variable not in known:
            raise unknown("environment variable", variable, known)
        values[known[variable].name] = known[variable].read(environ[variable], variable)
    return values


def from_file(config: Any, file: Path | None) -> dict[str, Any]:
    """Return the values of a TOML file, a run's own run.toml too; an unknown key is refused."""
    return {} if file is None else from_table(list(options(config)), read_toml(file), str(file))


def from_table(known: list[Option], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of parsed TOML: `name = value`, or a table with a named thing and its options."""
    by_name = {entry.name: entry for entry in known}
    owned = {entry.table: entry for entry in known if entry.table}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in owned and isinstance(value, dict):
            rest = dict(value)
            if "name" in rest:
                values[key] = by_name[key].load(rest.pop("name"), f"[{key}] name in {where}")
            values[owned[key].name] = owned[key].load(rest, f"[{key}] in {where}")
        elif key in by_name and not by_name[key].table:
            values[key] = by_name[key].load(value, f"{key} in {where}")
        else:
            raise unknown(f"key in {where}", key, {*owned, *(e.name for e in known if not e.table)})
    return values


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the refusal of a name that is no option; there are too many to list them all."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return UsageError(f"unknown {what}: {name}" + (f", did you mean {near[0]}?" if near else ", see --help"))


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises UsageError with a sentence."""
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the configuration file {str(file)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the configuration file {str(file)!r} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the configuration file {str(file)!r} is not TOML: {error}") from None
