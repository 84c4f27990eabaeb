"""What a report is made of: units, names, levels, lines, colours. Pure parts."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.common.command.options import public
from edgeflock.common.command.units import UNKNOWN, amount, means, scale, spans
from edgeflock.lab.history import read
from edgeflock.lab.plots import curves, theme
from edgeflock.lab.plots.curves import Curve
from edgeflock.lab.plots.names import elide, elided, without_beginning
from edgeflock.lab.plots.stacks import BYTES, by_bundle
from edgeflock.lab.report import tables
from edgeflock.lab.report.key_figures import figures
from edgeflock.lab.report.names import cell_names, differences, order, run_names
from edgeflock.server.config import ServerConfig
from edgeflock.server.journal.events import write_event
from support.told_run import insert, told_run, writing

_EVERY = frozenset(entry.name for entry in public(ServerConfig))


@pytest.mark.parametrize(
    ("quantity", "value", "words"),
    [
        ("bytes", 0, "0 B"),
        ("bytes", 999, "999 B"),
        ("bytes", 1500, "1.50 kB"),
        ("bytes", 999_499, "999 kB"),
        ("bytes", 999_600, "1.00 MB"),
        ("bytes", 3.8e12, "3.80 TB"),
        ("seconds", 0.0000005, "0.50 µs"),
        ("seconds", 0.25, "250 ms"),
        ("seconds", 59.0, "59 s"),
        ("seconds", 90.0, "1.50 min"),
        ("seconds", 36000.0, "10 h"),
        ("energy", 50_000.0, "50 kJ"),
        ("flops", 2.334e9, "2.33 GFLOP"),
        ("count", 123456, "123,456"),
        ("count", 12_300_000, "12.3 million"),
        ("bytes", None, UNKNOWN),
    ],
)
def test_an_amount_has_a_unit_that_fits_it(quantity: str, value: float | None, words: str) -> None:
    assert amount(quantity, value) == words


def test_an_axis_has_one_unit_for_all_its_values() -> None:
    found = scale("bytes", [1_000, 5_000_000])
    assert (found.label("bytes"), found.of([1_000_000])) == ("bytes (MB)", [1.0])
    assert scale("seconds", [1.5]).unit == "ms"  # fewer than two of a unit need the next smaller one
    assert scale("seconds", []).unit == "s"


def test_many_rounds_are_cut_into_spans_that_lose_none() -> None:
    assert spans(5, 60) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert spans(10, 4) == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert means([1, 2, 3, 4], [(0, 3), (3, 4)]) == [2, 4]


def test_a_long_name_keeps_both_ends() -> None:
    assert elide("a-long-name-of-a-run-seed1", 11) == "a-lon…seed1"
    assert elide("short", 11) == "short"


def test_names_that_would_look_the_same_are_cut_less() -> None:
    names = [f"run-with-{letter}-in-the-middle-of-it" for letter in "abc"]
    assert len(set(elided(names, 8))) == 3
    assert elided(["same", "same"], 8) == ["same", "same"]


def test_runs_of_one_name_are_told_apart_by_their_folders() -> None:
    assert run_names([Path("/x/a"), Path("/x/b")]) == ["a", "b"]
    assert run_names([Path("/x/1/run"), Path("/x/2/run")]) == ["1/run", "2/run"]


def told_apart(*configs: ServerConfig, given: Collection[str] = _EVERY) -> list[list[tuple[str, str]]]:
    """Return differences of runs that were given these options."""
    return differences(configs, [given] * len(configs))


def test_differences_name_what_two_runs_have_different_and_nothing_else() -> None:
    one = ServerConfig(method="fedtrip", seed=1, set={"mu": "1.0", "clip": "0.0"}, run_dir=Path("a"))
    two = ServerConfig(method="fedtrip", seed=2, set={"mu": "0.5", "clip": "0.0"}, run_dir=Path("b"))
    other = ServerConfig(method="fedavg", seed=2, set={"clip": "0.0"}, listen="127.0.0.1:1")
    assert told_apart(one, two) == [[("seed", "1"), ("mu", "1.0")], [("seed", "2"), ("mu", "0.5")]]
    assert told_apart(two, other) == [[("method", "fedtrip")], [("method", "fedavg")]]
    assert told_apart(one) == [[]]


def test_what_no_run_was_given_is_no_difference() -> None:
    """Methods have learning rates of their own: the method is what differs."""
    one, two = ServerConfig(method="fedtrip", lr=0.01), ServerConfig(method="fedavg", lr=0.05)
    assert told_apart(one, two, given={"method"}) == [[("method", "fedtrip")], [("method", "fedavg")]]
    assert told_apart(one, two)[0] == [("method", "fedtrip"), ("lr", "0.01")]


def test_what_most_runs_have_is_no_difference() -> None:
    configs = [ServerConfig(method="fedavg", seed=seed, lr=0.5 if seed == 2 else 0.1) for seed in range(4)]
    found = told_apart(*configs)
    assert found[2] == [("seed", "2"), ("lr", "0.5")]
    assert [mine for number, mine in enumerate(found) if number != 2] == [
        [("seed", str(seed))] for seed in (0, 1, 3)
    ]


def test_plots_leave_out_the_words_that_all_names_begin_with() -> None:
    names = [f"2026-11-18-a-long-story-{method}" for method in ("fedavg", "fedprox")]
    assert without_beginning(names) == ["…fedavg", "…fedprox"]
    assert without_beginning(["run-fedavg", "run-fedprox"]) == ["run-fedavg", "run-fedprox"]
    assert without_beginning(names[:1]) == names[:1]


@pytest.mark.parametrize(
    "names",
    [
        ["a seed 2", "a seed 10", "b seed 1"],
        ["lr 1e-05", "lr 0.001", "lr 0.05", "lr 0.1", "lr 0.25"],
        ["1", "x", "x1", "٣"],
    ],
)
def test_names_are_put_in_the_order_that_people_expect(names: list[str]) -> None:
    places = list(range(len(names)))
    assert (order(names), order(names[::-1])) == (places, places[::-1])


def test_cells_of_a_comparison_are_called_by_what_tells_them_apart() -> None:
    methods, seeds = ("fedavg", "fedavg", "fedprox", "fedprox"), (0, 1, 0, 1)
    configs = [ServerConfig(method=method, seed=seed) for method, seed in zip(methods, seeds, strict=True)]
    names = [f"{method}-{number:012x}" for number, method in enumerate(methods)]
    assert cell_names(names, configs, [_EVERY] * 4) == [
        "fedavg seed 0",
        "fedavg seed 1",
        "fedprox seed 0",
        "fedprox seed 1",
    ]
    assert cell_names(["mine", *names[1:]], configs, [_EVERY] * 4) == ["mine", *names[1:]]
    assert cell_names(names[:1], configs[:1], [_EVERY]) == names[:1]
    assert cell_names(names, [configs[0]] * 4, [_EVERY] * 4) == names, "nothing tells them apart"


def test_what_it_took_asks_for_levels_that_were_reached(tmp_path: Path) -> None:
    long, short = (read(told_run(tmp_path / name, rounds)) for name, rounds in (("long", 8), ("short", 3)))
    assert tables.levels([long, short]) == [0.3, 0.65, 0.7, 0.75, 0.8]
    found = tables.reached([long, short], ["long", "short"])
    assert found is not None
    assert found.heads[:2] == ("run", "accuracy 0.30")
    assert found.rows[0][1] == "3 rounds\n11.4 kB\n15 s"
    assert found.rows[1][1:] == ("3 rounds\n11.4 kB\n15 s", *["not reached"] * 4)


def test_what_it_took_asks_for_the_targets_of_the_runs(tmp_path: Path) -> None:
    one = read(told_run(tmp_path / "one", rounds=8, target={"accuracy": "0.425"}))
    two = read(told_run(tmp_path / "two", rounds=8, target={"accuracy": "0.9"}))
    found = tables.reached([one, two], ["one", "two"])
    assert found is not None
    assert found.heads[1] == "accuracy 0.425"
    assert found.heads[-1] == "accuracy 0.90"
    assert found.rows[0][1].startswith("5 rounds\n")
    assert found.rows[0][-1] == "not reached"


def test_devices_of_one_kind_share_a_row(tmp_path: Path) -> None:
    found = tables.devices(read(told_run(tmp_path / "run", names=("a", "b", "c"))))
    assert found is not None
    assert [row[:2] for row in found.rows] == [("3 clients: a, b, c", "aarch64")]


def test_watts_that_somebody_stated_have_a_column(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    assert "watts, as stated" not in heads(tables.devices(read(run_dir)))
    with writing(run_dir) as journal:
        write_event(journal, "client_joined", {"client": "b", "machine": "aarch64", "watts": 7.5}, 2.0)
    found = tables.devices(read(run_dir))
    assert heads(found)[-1] == "watts, as stated"
    assert found is not None
    assert [(row[0], row[-1]) for row in found.rows] == [("a", UNKNOWN), ("b", "7.50 W")]


def heads(table: tables.Table | None) -> tuple[str, ...]:
    return () if table is None else table.heads


def test_the_table_of_clients_has_only_costs_that_somebody_had(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    before = tables.clients(read(run_dir))
    with writing(run_dir) as journal:
        journal.execute("UPDATE costs SET energy_j = 2.5, energy_source = 'rapl'")
        journal.execute("UPDATE outcomes SET verdict = 'non_finite' WHERE round = 2 AND seat = 1")
    after = tables.clients(read(run_dir))
    assert before is not None
    assert after is not None
    assert ("energy" in before.heads, "energy" in after.heads) == (False, True)
    row = dict(zip(after.heads, after.rows[1], strict=True))
    assert (row["client"], row["energy"], row["counted"]) == ("b", "7.50 J", "2")
    assert row["not counted"] == "1 non finite"


def line(*y: float) -> Curve:
    return Curve("a run", theme.stroke(0), range(len(y)), y)


def test_a_loss_that_diverged_is_cut_off_and_does_not_flatten_the_others() -> None:
    lines = [line(2.3, 1.0), line(2.3, 1e27)]
    frame = curves.loss_frame(lines)
    assert frame.high == pytest.approx(1.3 * 2.3)
    assert curves.remarks(lines, frame) == ["An arrow at the top: a run leaves the frame there."]
    assert curves.loss_frame([line(2.3, 1.0), line(2.3, 5.0)]) == curves.Frame()
    assert curves.loss_frame([]) == curves.Frame()


def test_a_plot_with_targets_begins_a_little_below_the_lowest() -> None:
    high, low = line(0.1, 0.8, 0.92), line(0.1, 0.3, 0.5)
    frame = curves.accuracy_frame([high, low], (0.85, 0.9))
    assert frame.low == pytest.approx(0.7, abs=0.01)
    assert frame.high == pytest.approx(0.93, abs=0.01)
    assert curves.remarks([high, low], frame) == ["An arrow at the bottom: a run leaves the frame there."]
    assert curves.accuracy_frame([high], ()).low is None


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.5, 0.6, 0.7], []),
        ([-1.0, 0.5], []),  # one that comes into the frame does not leave it
        ([0.5, 1.5], [(0.5, curves.TOP)]),
        ([0.5, 1.5, 0.5, -0.5], [(0.5, curves.TOP), (2.5, curves.BOTTOM)]),
        ([-1.0, -2.0], [(1.0, curves.BOTTOM)]),
        ([], []),
    ],
)
def test_where_a_line_leaves_the_frame(values: list[float], found: list[tuple[float, str]]) -> None:
    assert curves.leaves(values, 0.0, 1.0) == found


def test_arrows_of_two_lines_that_are_never_in_the_frame_stand_beside_each_other() -> None:
    lines = [line(0.8, 0.9), line(0.1, 0.1), line(0.2, 0.2)]
    with theme.styled():
        made = curves.draw(lines, "round", "a", "", legend=False, frame=curves.Frame(0.7, 1.0))
    arrows = [found for found in made.axes[0].get_lines() if found.get_marker() == "v"]
    assert len({str(arrow.get_xdata()) for arrow in arrows}) == len(arrows) == 2


def test_a_line_that_lies_on_another_is_named_and_dashed() -> None:
    one, same, other = line(0.1, 0.5, 0.9), line(0.1, 0.5001, 0.9), line(0.1, 0.5, 0.8)
    assert curves.twins([one, other, same, same]) == {2: 0, 3: 0}
    assert curves.twins([]) == {}
    named = [replace(found, label=label) for found, label in ((one, "fedavg"), (same, "fedprox"))]
    assert curves.remarks(named, curves.Frame()) == ["fedprox lies on fedavg."]
    with theme.styled():
        made = curves.draw(named, "round", "accuracy", "", legend=True)
    below, above = made.axes[0].get_lines()
    assert (below.get_linestyle(), above.get_linestyle()) == ("-", "--")
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["fedavg", "fedprox (on fedavg)"]


def test_every_method_of_a_comparison_has_a_colour_and_a_shape_of_its_own() -> None:
    looks = [theme.marked(number, 0) for number in range(len(theme.HUES))]
    assert len({look.colour for look in looks}) == len({look.shape for look in looks}) == len(looks)
    assert all(look.mark for look in looks)


def test_energy_is_an_axis_where_a_ledger_has_it(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    assert [axis.name for axis in curves.axes_of([read(run_dir)])] == ["rounds", "bytes", "seconds"]
    with writing(run_dir) as journal:
        journal.execute("UPDATE costs SET energy_j = 2.5")
    assert [axis.name for axis in curves.axes_of([read(run_dir)])][-1] == "energy"


def test_a_run_that_nobody_told_the_energy_of_has_no_line_against_it(tmp_path: Path) -> None:
    told, untold = (told_run(tmp_path / name) for name in ("told", "untold"))
    with writing(told) as journal:
        journal.execute("UPDATE costs SET energy_j = 2.5")
    energy = curves.axes_of([read(told)])[-1]
    lines = curves.evaluations([read(told), read(untold)], ["told", "untold"], "accuracy", energy)
    assert [list(line.x) for line in lines] == [[5.0, 10.0, 15.0], []]


def test_joules_are_told_by_who_says_them(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        journal.execute("UPDATE costs SET energy_j = 2.0, energy_source = 'model' WHERE seat = 0")
        journal.execute("UPDATE costs SET energy_j = 3.0, energy_source = 'rapl' WHERE seat = 1")
        insert(journal, "round_costs", {"epoch": 0, "round": 2, "name": "energy_j", "value": 4.0})
    history = read(run_dir)
    assert history.rounds[0].joules == {"sensor_j": 3.0, "model_j": 2.0}
    assert history.rounds[1].joules == {"sensor_j": 3.0, "model_j": 2.0, "server_j": 4.0}
    first, second = (client.costs for client in history.clients)
    assert (first["model_j"], "sensor_j" in first) == (6.0, False)
    assert (second["sensor_j"], "model_j" in second) == (9.0, False)
    sources = "9 J from clients' sensors; 6 J from a model: watts as stated; 4 J from server's sensor"
    assert figures(history)[-1] == ("energy", "19 J", sources)


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("7 of 10 classes are held by somebody, nobody holds 0, 2, 6", "nobody holds 0, 2, 6"),
        ("7 of 7 classes are held by somebody", "drawn at random: some might have been left out"),
    ],
)
def test_classes_that_may_have_been_left_out_are_a_key_figure(tmp_path: Path, reason: str, more: str) -> None:
    run_dir = told_run(tmp_path / "run")
    assert "classes held" not in [name for name, _, _ in figures(read(run_dir))]
    fields = {"held": 7, "classes": int(reason.split()[2]), "reason": reason, "missing": []}
    with writing(run_dir) as journal:
        insert(journal, "events", {"at": 0.0, "name": "classes_held", "fields": json.dumps(fields)})
    assert ("classes held", f"7 of {fields['classes']}", more) in figures(read(run_dir))


def test_bytes_by_what_they_held_are_summed_and_named(tmp_path: Path) -> None:
    run_dir = told_run(tmp_path / "run")
    with writing(run_dir) as journal:
        for round, way, kind, codec, size in (
            (1, "down", "model", "identity", 2000),
            (1, "up", "delta", "int8", 600),
            (2, "up", "delta", "int8", 400),
        ):
            key = {"epoch": 0, "round": round, "seat": 0, "direction": way, "kind": kind}
            insert(journal, "bundle_bytes", {**key, "codec": codec, "bytes": size})
    history = read(run_dir, bundles=True)
    found = tables.bundles(history)
    assert found is not None
    assert found.rows[:3] == (
        ("down", "model", "identity", "2 kB", "66.7%"),
        ("up", "delta", "int8", "1 kB", "33.3%"),
        ("both", "all payload", "", "3 kB", "100.0%"),
    )
    assert [part.label for part in by_bundle(list(history.bundles)).parts] == ["model down", "delta up, int8"]


def test_the_parts_of_bytes_are_together_what_crossed_the_wire() -> None:
    costs = {"bytes_down": 100, "bytes_up": 90, "resent_bytes": 10}
    costs |= {"message_bytes_down": 105, "message_bytes_up": 96}
    costs |= {"wire_bytes_down": 120, "wire_bytes_up": 130}
    assert sum(part.of(costs) for part in BYTES.parts) == 250


def test_every_run_of_a_full_report_has_a_look_of_its_own() -> None:
    looks = {(look.colour, look.pattern) for look in map(theme.stroke, range(theme.LARGEST))}
    assert len(looks) == theme.LARGEST


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_lines_and_texts_stand_out_on_light_and_on_dark() -> None:
    """WCAG 2.1: 3 to 1 for graphics, 4.5 to 1 for text."""
    dark = theme.DARK[theme.PAPER]
    assert min(contrast(light, theme.PAPER) for light, _ in theme.HUES) >= 3
    assert min(contrast(hue, dark) for _, hue in theme.HUES) >= 3
    for text in (theme.INK, theme.FAINT):
        assert min(contrast(text, theme.PAPER), contrast(theme.DARK[text], dark)) >= 4.5


def test_an_svg_file_is_whole_and_turns_every_colour_of_the_theme(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    with theme.styled():
        made = curves.draw([line(1.0, math.e), line(2.0, 0.5)], "round", "a $b", "", legend=True)
        text = theme.standing_alone(theme.svg(made))
    root = ET.fromstring(text)
    assert root.tag.endswith("}svg")
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text.partition("</style>")[2]))
    assert used <= set(theme.DARK)
    assert {theme.INK, theme.PAPER, theme.HUES[0][0]} <= used


def test_the_same_numbers_give_the_same_svg() -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")

    def text() -> str:
        with theme.styled():
            return theme.svg(curves.draw([line(1.0, 2.0)], "round", "loss", "", legend=False))

    assert text() == text()
