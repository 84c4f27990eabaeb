"""Options: one dataclass gives flags, variables, TOML keys, checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.command.flags import to_arguments
from edgeflock.common.command.kinds import (
    FLAG,
    INTEGER,
    NUMBER,
    PAIRS,
    PATH,
    SECONDS,
    TEXT,
    duration,
    seconds,
)
from edgeflock.common.command.options import check, gather, option
from edgeflock.common.command.ranges import at_least, one_of
from edgeflock.common.command.settings_file import from_toml, identity_difference, to_toml
from edgeflock.common.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Kettle:
    """A configuration with one field of every kind."""

    sort: str = option("steel", TEXT, "what it is", group="A", identity=True)
    part: dict[str, str] = option({}, PAIRS, "its parts", group="A", identity=True, table="sort")
    cups: int = option(2, INTEGER, "how many", group="A", allowed=at_least(1, "an integer"), identity=True)
    heat: float = option(0.5, NUMBER, "how hot", group="A", allowed=at_least(0))
    wait: float = option(60.0, SECONDS, "how long", group="B")
    loud: bool = option(False, FLAG, "whether it sings", group="B")
    place: Path | None = option(None, PATH, "where", group="B")
    mood: str = option("calm", TEXT, "how it feels", group="B", allowed=one_of("calm", "wild"))
    secret: float = option(0.0, NUMBER, "nobody says it", group="B", internal=True)


def given(
    flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None, file: Path | None = None
) -> Any:
    return gather(Kettle, flags or {}, environ or {}, "KETTLE", file)


def written(folder: Path, text: str) -> Path:
    path = folder / "kettle.toml"
    path.write_text(text)
    return path


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "cups = 3\nheat = 3\nwait = 3\n")
    values = given({"cups": "5"}, {"KETTLE_CUPS": "4", "KETTLE_HEAT": "4"}, file)
    assert values == {"cups": 5, "heat": 4.0, "wait": 3.0}


def test_pairs_of_all_sources_are_merged_by_key(tmp_path: Path) -> None:
    file = written(tmp_path, "[sort]\nname = 'tin'\nlid = 'a'\nspout = [1, 2]\nbase = true\n")
    values = given({"part": ("lid=c", "knob=x=y")}, {"KETTLE_PART": "lid=b spout=3"}, file)
    assert values == {"sort": "tin", "part": {"lid": "c", "knob": "x=y", "spout": "3", "base": "true"}}


def test_a_list_in_a_table_is_what_a_flag_would_say(tmp_path: Path) -> None:
    assert given(file=written(tmp_path, "[sort]\nspout = [64, 32]\n")) == {"part": {"spout": "64,32"}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cup = 3", "unknown key in {file}: cup, did you mean cups?"),
        ("part = 3", "unknown key in {file}: part"),
        ("[kind]\na = 1", "unknown key in {file}: kind"),
        ("cups = '3'", "cups in {file} is '3', allowed is an integer >= 1"),
        ("cups = true", "cups in {file} is True, allowed is an integer >= 1"),
        ("cups = 0", "cups in {file} is 0, allowed is an integer >= 1"),
        ("heat = nan", "heat in {file} is nan, allowed is a number >= 0"),
        ("loud = 'yes'", "loud in {file} is 'yes', allowed is true or false"),
        ("wait = 'long'", "wait in {file} is 'long', allowed is a time such as 30s, 10m or 12h"),
        ("place = 3", "place in {file} is 3, allowed is a path"),
        ("[sort]\nname = 3", "[sort] name in {file} is 3, allowed is a text"),
        ("[sort]\nlid = {{a = 1}}".replace("{{", "{").replace("}}", "}"), "[sort] in {file} is"),
        ("cups = ", "the configuration file '{file}' is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        given(file=file)
    assert str(caught.value).startswith(sentence.replace("{file}", str(file)))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the configuration file .*No such file"):
        given(file=tmp_path / "none.toml")


def test_an_unknown_variable_with_the_prefix_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="KETTLE_CUP, did you mean KETTLE_CUPS"):
        given(environ={"KETTLE_CUP": "1", "HOME": "/"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cups", "x"),
        ("cups", "0"),
        ("cups", "1.5"),
        ("cups", ""),
        ("cups", "9" * 5000),
        ("heat", "inf"),
        ("heat", "nan"),
        ("heat", "-1"),
        ("wait", "10 parsecs"),
        ("wait", "-5s"),
        ("mood", "sad"),
        ("place", ""),
    ],
)
def test_a_wrong_value_is_refused_and_names_the_option(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"^--{name} is .*, allowed is "):
        given({name: text})
    with pytest.raises(UsageError, match=rf"^KETTLE_{name.upper()} is .*, allowed is "):
        given(environ={f"KETTLE_{name.upper()}": text})


@pytest.mark.parametrize("text", ["lid", "=3", ""])
def test_a_pair_without_key_or_sign_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--part is .*, allowed is KEY=VALUE"):
        given({"part": (text,)})


def test_a_key_that_is_given_twice_is_refused() -> None:
    """In a flag and a file it is no mistake: the flag wins."""
    with pytest.raises(UsageError, match=r"^--part says lid twice: '1' and '2'$"):
        given({"part": ("lid=1", "spout=1", "lid=2")})
    with pytest.raises(
        UsageError, match=r"^KETTLE_PART is 'lid=1 lid=2', allowed is KEY=VALUE, each KEY once"
    ):
        given(environ={"KETTLE_PART": "lid=1 lid=2"})
    both = given({"part": ("lid=1",)}, environ={"KETTLE_PART": "lid=2 spout=3"})
    assert both["part"] == {"lid": "1", "spout": "3"}


@pytest.mark.parametrize(
    ("text", "number"),
    [("30", 30), ("30s", 30), ("500ms", 0.5), ("10m", 600), ("1.5h", 5400), ("2d", 172800), (".5s", 0.5)],
)
def test_a_time_has_a_unit(text: str, number: float) -> None:
    assert seconds(text) == number


@pytest.mark.parametrize("number", [0.0, 0.5, 30.0, 90.0, 600.0, 43200.0, 86400.0])
def test_a_time_that_was_written_is_read_again(number: float) -> None:
    assert seconds(duration(number)) == number


def test_a_configuration_made_by_hand_is_checked_too() -> None:
    with pytest.raises(UsageError, match="--cups is 0"):
        check(Kettle(cups=0))


ODD = Kettle(
    sort='st"eel\\ \n\x7f\u2603\U0001f600',
    part={"l-i_d": "1", "a.b": "x y"},
    heat=1e-07,
    loud=True,
    place=Path("/a b"),
    secret=0.25,
)


@pytest.mark.parametrize("config", [Kettle(), ODD])
def test_what_is_written_is_read_again(tmp_path: Path, config: Kettle) -> None:
    from edgeflock.common.command.options import read_toml

    file = written(tmp_path, to_toml(config))
    assert from_toml(Kettle, read_toml(file), str(file)) == config


def test_values_become_flags_that_say_them() -> None:
    values = {
        "sort": "tin",
        "part": {"lid": "a b"},
        "cups": 3,
        "loud": False,
        "place": Path("x"),
        "wait": 1.5,
    }
    arguments = to_arguments(Kettle, values)
    assert arguments == ["--sort=tin", "--part=lid=a b", "--cups=3", "--wait=1.5", "--no-loud", "--place=x"]


def test_only_identity_makes_a_difference() -> None:
    old = Kettle(part={"lid": "a", "knob": "b"})
    assert identity_difference(old, Kettle(part=old.part, wait=5, loud=True)) == ""
    new = Kettle(cups=3, part={"lid": "z", "knob": "b"})
    assert identity_difference(old, new) == "--part lid (a there, z here), --cups (2 there, 3 here)"
