"""Grids of runs: which cells a file makes, and which sentence refuses it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.command.kinds import INTEGER, NUMBER, SECONDS
from edgeflock.common.command.options import Option, options
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.compare.comparison import Comparison, shared_address, spare
from edgeflock.lab.grid import grid_toml, identity
from edgeflock.lab.grid.grid import CELLS, Cell, Grid, make_grid, read_grid, run_dir
from edgeflock.lab.grid.options import values_of
from edgeflock.server.config import ServerConfig
from edgeflock.server.files.run_toml import to_toml

ROOT = Path(__file__).resolve().parents[2]

GRID = """
baseline = "fedavg"
target = 0.8

[grid]
method = ["fedavg", "strong"]
seed = [0, 1]

[run]
rounds = 5
model = { name = "mlp", hidden = "20" }
processes = 1

[method.strong]
name = "fedprox"
mu = 2
lr = 0.1
"""


def grid(text: str = GRID) -> Grid:
    return make_grid(tomllib.loads(text), "g.toml")


def digests(text: str) -> set[str]:
    return {cell.digest for cell in grid(text).cells}


def test_every_combination_is_a_cell_and_seeds_change_slowest() -> None:
    assert [cell.name for cell in grid().cells] == [
        "fedavg seed=0",
        "strong seed=0",
        "fedavg seed=1",
        "strong seed=1",
    ]


def test_a_cell_is_given_what_is_common_what_is_its_methods_and_what_varies() -> None:
    cell = grid().cells[3]
    assert cell.given == {
        "method": "fedprox",
        "set": {"mu": "2"},
        "lr": 0.1,
        "seed": 1,
        "rounds": 5,
        "model": "mlp",
        "model_arg": {"hidden": "20"},
    }
    assert cell.lab == {"processes": 1}
    assert (cell.config.set["mu"], cell.config.batch_size) == ("2.0", 32)


def test_the_digest_tells_all_cells_apart() -> None:
    assert len(digests(GRID)) == 4


def test_a_cell_keeps_its_digest_when_others_are_added_or_it_is_to_go_on() -> None:
    assert digests(GRID) <= digests(GRID.replace("seed = [0, 1]", "seed = [2, 1, 0]"))
    assert digests(GRID) == digests(GRID.replace("rounds = 5", "rounds = 9"))
    assert digests(GRID) == digests(GRID.replace("target = 0.8", "target = 0.9"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('hidden = "20"', 'hidden = "30"'),
        ("processes = 1", "processes = 2"),
        *(
            ("rounds = 5", f"rounds = 5\n{other}")
            for other in (
                "clients = 3",
                "budget = { time = '3s' }",
                "eval_every = 2",
                "eval_clients = 'local'",
                "deadline = '30s'",
                "min_updates = 4",
                "target = { accuracy = 0.5 }",
            )
        ),
    ],
)
def test_another_option_of_the_run_is_another_cell(old: str, new: str) -> None:
    assert digests(GRID).isdisjoint(digests(GRID.replace(old, new)))


OTHERWISE = {  # of every option that changes the outcome, a value that is not the default
    "method": "fedprox",
    "set": {"clip": "3"},
    "budget": {"bytes": "1 GB"},
    "target": {"accuracy": "0.5"},
    "participation": "online",
    "cohort_lines": ("c0 c1",) * 20,
    "model": "linear",
    "model_arg": {"hidden": "7"},
    "dataset": "mnist",
    "partition": "classes:2",
    "codec": "fp16",
    "codec_down": "fp16",
    "eval_clients": "both",
}


@pytest.mark.parametrize("entry", list(options(ServerConfig)), ids=lambda entry: entry.name)
def test_every_option_changes_the_outcome_unless_it_is_listed_with_a_reason(entry: Option) -> None:
    config = grid().cells[0].config
    if isinstance(entry.default, bool):
        other: Any = not getattr(config, entry.name)
    elif entry.kind in (INTEGER, NUMBER, SECONDS):
        other = (getattr(config, entry.name) or 0) + 1
    else:
        other = OTHERWISE.get(entry.name, Path("other"))
    counts = identity.digest(replace(config, **{entry.name: other}), {}) != identity.digest(config, {})
    assert counts == (entry.name not in identity.NO_MATTER)
    assert counts or identity.NO_MATTER[entry.name]


def test_nothing_is_listed_that_is_no_option_or_makes_a_run_what_it_is() -> None:
    known = {entry.name: entry for entry in options(ServerConfig)}
    assert identity.NO_MATTER.keys() <= known.keys()
    assert not any(known[name].identity for name in identity.NO_MATTER)


def test_other_content_of_the_test_data_is_another_cell_wherever_they_lie(tmp_path: Path) -> None:
    def cell(content: bytes, name: str) -> str:
        (tmp_path / name).write_bytes(content)
        return identity.digest(replace(grid().cells[0].config, eval_data=tmp_path / name), {})

    assert cell(b"one", "a.npz") == cell(b"one", "b.npz") != cell(b"other", "a.npz")


def test_a_later_option_makes_no_other_cell_of_a_run_that_was_held_without_it() -> None:
    """An option that is new goes into `SINCE`: or else every cell of everybody is held again."""
    text = "[run]\nrounds = 3\nclients = 2\n[grid]\nmethod = ['fedavg', 'pfedmo', 'fedadm']\nseed = [0]"
    known = [cell.digest for cell in grid(text).cells]
    assert known == ["99cf74fcb905", "81bbd84d8ae2", "19851f0e6e87"]
    for more in ("[method.fedadm]\nbatches = 'equal'", "[method.fedadm]\nclock = 'simulated'"):
        changed = [cell.digest for cell in grid(f"{text}\n{more}").cells]
        assert (changed[:2], changed[2] == known[2]) == (known[:2], False)


def test_a_run_that_an_earlier_edgeflock_made_is_kept_if_it_is_the_cell_s(tmp_path: Path) -> None:
    cell, other = grid().cells[0], grid(GRID.replace("rounds = 5", "rounds = 5\neval_every = 2")).cells[0]
    assert cell.digest_before == other.digest_before  # which was what was wrong
    folder = tmp_path / CELLS / f"{cell.method}-{cell.digest_before}"
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text(to_toml(replace(cell.config, rounds=9)))
    assert run_dir(tmp_path, cell) == folder
    assert run_dir(tmp_path, other) == tmp_path / CELLS / other.folder != folder


def test_an_axis_that_a_server_could_change_on_resume_makes_cells_of_its_own() -> None:
    assert len(digests("[grid]\nrounds = [5, 10]\nbudget = [{ bytes = '1MB' }, { bytes = '2MB' }]")) == 4


def test_steps_of_a_method_replace_the_epochs_of_all() -> None:
    text = "[grid]\nmethod = ['fedavg', 'fedprox']\n[run]\nepochs = 2\n[method.fedprox]\nsteps = 7"
    assert [(cell.config.epochs, cell.config.steps) for cell in grid(text).cells] == [(2, None), (None, 7)]


def test_without_axes_there_is_one_cell() -> None:
    assert [cell.name for cell in grid("[run]\nmethod = 'fedprox'").cells] == ["fedprox"]


def test_a_baseline_may_be_any_axis() -> None:
    text = "baseline = { codec = 'identity' }\n[grid]\ncodec = ['identity', 'int8']"
    assert grid(text).baseline == {"codec": "identity"}


CASES = """
target = 0.8
[grid]
method = ["fedavg", "fedtrip", "plain"]
"fedtrip.mu" = [0.1, 0.4]
seed = [0, 1]
[run]
rounds = 5
lr = 0.1
[method.plain]
name = "fedtrip"
mu = 2.0
push_limit = 0
measure = "client_pooled"
[[case]]
name = "small"
model = { name = "mlp", hidden = "20" }
samples_per_client = 10
[[case]]
name = "large"
lr = 0.2
target = [0.9, 0.5]
fedtrip.momentum = 0.9
"plain.momentum" = 0.5
fedavg.measure = "client_local"
"""


def rows(text: str = CASES) -> dict[str, Cell]:
    return {cell.name: cell for cell in grid(text).cells if "seed=0" in cell.name}


def test_options_vary_together_by_case_and_those_of_a_method_are_its_axis_alone() -> None:
    assert list(rows()) == [
        f"{row} case={case} {rest}seed=0"
        for case in ("small", "large")
        for row, rest in (("fedavg", ""), ("fedtrip", "mu=0.1 "), ("fedtrip", "mu=0.4 "), ("plain", ""))
    ]
    assert len(digests(CASES)) == len(grid(CASES).cells) == 16
    found = {name: (c.config.set.get("mu"), c.config.lr, c.config.momentum) for name, c in rows().items()}
    assert found["fedtrip case=small mu=0.4 seed=0"] == ("0.4", 0.1, 0.9)  # fedtrip's own momentum
    assert found["plain case=large seed=0"] == ("2.0", 0.2, 0.5)
    assert rows()["fedavg case=small seed=0"].config.model_arg == {"hidden": "20"}


def test_targets_and_the_model_that_counts_are_those_of_a_case_and_a_method() -> None:
    made = grid(CASES)
    asked = {name: (made.targets_of(cell), made.measure_of(cell)) for name, cell in rows().items()}
    assert asked["fedavg case=small seed=0"] == ((0.8,), "global")
    assert asked["fedavg case=large seed=0"] == ((0.5, 0.9), "client_local")
    assert asked["plain case=small seed=0"] == ((0.8,), "client_pooled")
    assert made.targets == (0.5, 0.8, 0.9)


def test_runs_of_which_different_things_are_asked_are_one_run() -> None:
    text = "[grid]\nmethod = ['a', 'b']\n[method.a]\nname = 'pfedmo'\n[method.b]\nname = 'pfedmo'\n"
    found = grid(text + "measure = 'representation'")
    assert [cell.folder for cell in found.cells] == [found.cells[0].folder] * 2
    assert found.runs == found.cells[:1]
    assert len(grid(text + "rounds = 3").runs) == 2  # the longer one answers for no shorter one


def test_a_case_keeps_its_cells_when_others_are_added_and_their_rounds_are_their_own() -> None:
    assert digests(CASES) <= digests(CASES + "[[case]]\nname = 'third'\nlr = 0.3")
    one = "[[case]]\nname = 'a'\nrounds = 5\n[[case]]\nname = 'b'\nrounds = 9"
    assert len(digests(one)) == 2


REFUSALS = [
    ("case = 1", "case in g.toml is 1, allowed is tables, [[case]]"),
    ("[[case]]\nlr = 1", "[[case]] 1 of g.toml has no name: every case is called something"),
    ("[[case]]\nname = 'a'\nlrr = 1", "unknown key in [[case]] 1 of g.toml: lrr, did you mean lr?"),
    ("[[case]]\nname = 'a'\n[[case]]\nname = 'a'", "name in [[case]] 2 of g.toml is 'a', allowed is every"),
    ("[[case]]\nname = 'a'\nseed = 1", "seed in [[case]] 1 of g.toml: every case has the same ones"),
    ("[[case]]\nname = 'a'\ntarget = 2", "target of fedavg case=a in g.toml is 2, allowed is accuracies"),
    (
        "[[case]]\nname = 'a'\nmeasure = 'x'",
        "measure of fedavg case=a in g.toml is 'x', allowed is client_local",
    ),
    (
        "[grid]\nlr = [1]\n[[case]]\nname = 'a'\nlr = 1",
        "lr stands in [grid] and in [[case]] 1 of g.toml: give it",
    ),
    (
        "[method.fedavg]\nlr = 1\n[[case]]\nname = 'a'\nlr = 1",
        "lr stands in [[case]] 1 of g.toml and in [method.fedavg]: give it once, or as fedavg.lr in the case",
    ),
    (
        "[[case]]\nname = 'a'\nfedprox.mu = 1",
        "fedprox.mu in [[case]] 1 of g.toml is 'fedprox', allowed is a method",
    ),
    (
        "[grid]\nfedtrip.mu = [1]",
        "fedtrip.mu in [grid] of g.toml is 'fedtrip', allowed is a method that the grid",
    ),
    ("[grid]\nfedavg.mu = [1]", "unknown key in [grid] of g.toml: mu, see --help"),
    (
        "[grid]\nfedavg.lr = 1",
        "fedavg.lr in [grid] of g.toml is 1, allowed is a list with at least one value",
    ),
    (
        "[method.fedavg]\nclip = 1\n[grid]\nfedavg.clip = [1]",
        "clip stands in [grid] and in [method.fedavg] of g.toml: give it once",
    ),
    (
        "[method.fedavg]\nlr = 1\n[[case]]\nname = 'a'\nfedavg.lr = 1",
        "lr stands in [method.fedavg] and as fedavg.lr in [[case]] 1 of g.toml: give it once",
    ),
    (
        "# nothing",
        "g.toml describes no run: options of the runs stand in [run], or in [grid] as lists",
    ),
    (
        "targets = 0.8",
        "unknown key in g.toml: targets, known are grid, run, case, method, baseline, target, measure",
    ),
    ("rounds = 8", "options of the runs stand in [run], or in [grid] as lists"),
    ("target = [1.5]", "target in g.toml is 1.5, allowed is accuracies in (0, 1]"),
    ("[grid]\nmethods = ['fedavg']", "unknown key in [grid] of g.toml: methods, did you mean method?"),
    ("[grid]\nsead = 1", "unknown key in [grid] of g.toml: sead, did you mean seed?"),
    ("[grid]\nseed = 1", "seed in [grid] of g.toml is 1, allowed is a list with at least one value"),
    ("[grid]\nseed = []", "seed in [grid] of g.toml is [], allowed is a list with at least one value"),
    (
        '[run]\nbudget = "time=3s"',
        "budget in [run] of g.toml is 'time=3s', allowed is a table such as { KEY = VALUE }",
    ),
    ("[grid]\nseed = [1, 1]", "seed in [grid] of g.toml is '1', allowed is every value once"),
    ("[grid]\nseed = ['one']", "seed in [grid] of g.toml is 'one', allowed is an integer from 0 to"),
    ("[grid]\nmethod = ['fedavgg']", "unknown method 'fedavgg': did you mean 'fedavg'?"),
    ("[grid]\nmethod = ['a/b']\n[method.'a/b']\nname = 'fedavg'", "letters, digits and . _ + -, at most 100"),
    (f"[grid]\nmethod = ['{'a' * 260}']\n[method.{'a' * 260}]\nname = 'fedavg'", "and . _ + -, at most 100"),
    ("[run]\nround = 3", "unknown key in [run] of g.toml: round, did you mean rounds?"),
    (
        "[run]\nrun_dir = 'x'",
        "run_dir in [run] of g.toml: every cell has a directory of its own, below --out",
    ),
    ("[run]\nset = { mu = 1 }", "set in [run] of g.toml: options of a method stand in [method.NAME]"),
    ("[run]\nseed = 1\n[grid]\nseed = [1, 2]", "seed stands in [grid] and in [run] of g.toml: give it once"),
    ("[method.fedprox]\nmu = 1", "unknown method in [method.fedprox] of g.toml, which the grid does not run"),
    ("[method.fedavg]\nmu = 1", "unknown key in [method.fedavg] of g.toml: mu"),
    (
        "[method.fedavg]\nseed = 1\n[grid]\nseed = [1]",
        "seed stands in [grid] and in [method.fedavg] of g.toml",
    ),
    (
        "[method.fedavg]\nmethod = 'fedprox'",
        "method in [method.fedavg] of g.toml: the method that it is one of is",
    ),
    ("[run]\ncohort = 9", "fedavg: --cohort is 9, allowed is at most --clients, which is 4"),
    (
        "baseline = 'fedprox'\n[grid]\nmethod = ['fedavg']",
        "baseline in g.toml is 'fedprox', allowed is one of fedavg",
    ),
    ("baseline = 'fedavg'", "baseline in g.toml is 'method', allowed is one of the grid's axes: none"),
    ("measure = 1", "measure in g.toml is 1, allowed is a text"),
    (
        "measure = 'globl'",
        "measure in g.toml is 'globl', allowed is client_local, client_pooled, devices, global, personal, "
        "representation",
    ),
    ("run = 1", "run in g.toml is 1, allowed is a table, [run]"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSALS, ids=[sentence for _, sentence in REFUSALS])
def test_what_is_no_grid_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        grid(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"[grid", b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_refused_with_a_sentence(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"g\.toml"):
        read_grid(path)


def test_data_that_lie_elsewhere_make_no_other_cell() -> None:
    cell = grid().cells[0].with_data(Path("elsewhere"))
    assert (cell.folder, cell.given["data_root"]) == (grid().cells[0].folder, Path("elsewhere"))
    assert cell.config.data_root == Path("elsewhere")


def test_the_grid_of_the_examples_runs_every_method_with_the_momentum_that_it_has_room_for() -> None:
    found = read_grid(ROOT / "examples" / "fashion.toml")
    momenta = {cell.method: cell.config.momentum for cell in found.cells}
    assert len(found.cells) == 18
    assert {name for name, momentum in momenta.items() if momentum == 0} == {"fedmrur", "pfedmo"}


def test_the_example_for_a_fresh_clone_needs_no_data_of_others_and_treats_all_methods_alike() -> None:
    found = read_grid(ROOT / "examples" / "digits.toml")
    trained = {(c.config.dataset, c.config.lr, c.config.momentum, c.config.epochs) for c in found.cells}
    assert (len(found.cells), trained) == (6, {("digits", 0.02, 0.0, 2)})


def test_the_document_shows_the_outcome_of_that_grid() -> None:
    found = read_grid(ROOT / "examples" / "fashion.toml")
    text = (ROOT / "docs" / "compare.md").read_text("utf-8")
    shown = text.partition("## An outcome: six methods on Fashion-MNIST\n")[2].partition("\n## ")[0]
    for target in found.targets:
        rows = shown.partition(f"\nTo accuracy {target:g}\n")[2].partition("\n\n")[0].splitlines()[1:]
        assert [row.split()[0] for row in rows] == list(found.axes["method"])


def test_the_grid_of_the_document_is_one() -> None:
    text = (ROOT / "docs" / "compare.md").read_text("utf-8")
    example, *_ = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    found = grid(example)
    assert (len(found.cells), found.targets) == (18, (0.8, 0.85))


@pytest.mark.parametrize(
    ("option", "shared"),
    [
        ("dashboard = '8080'", "dashboard 8080"),
        ("listen = '127.0.0.1:9300'", "listen 127.0.0.1:9300"),
        ("control = 'unix:/tmp/c'", "control unix:/tmp/c"),
        ("dashboard = '127.0.0.1:0'", ""),
        ("dashboard = '0'", ""),
        ("dashboard = 'off'", ""),
    ],
)
def test_cells_that_share_an_address_run_one_at_a_time(option: str, shared: str, tmp_path: Path) -> None:
    found = grid(f"[grid]\nseed = [0, 1]\n[run]\nclients = 1\nprocesses = 1\n{option}")
    assert shared_address(found.cells) == shared
    if shared:
        assert spare(found.cells) == 1
        with pytest.raises(UsageError, match=f"{shared} is that of several cells: give --jobs 1, or port 0"):
            Comparison(found, tmp_path / "out", jobs=2).run({})
    assert list(tmp_path.iterdir()) == []
    assert shared_address(found.cells[:1]) == ""


def test_a_method_can_be_measured_by_a_model_of_its_own_and_the_file_ask_for_more_figures() -> None:
    text = """
    last = 10
    at = [5, 10]
    [grid]
    method = ["fedavg", "fedprox"]
    [method.fedprox]
    measure = "client_local"
    [[figure]]
    kind = "boxes"
    """
    made = make_grid(tomllib.loads(text), "g.toml")
    assert [made.measure_of(cell) for cell in made.cells] == ["global", "client_local"]
    assert (made.last, made.at, made.figures) == (10, (5, 10), ({"kind": "boxes"},))
    assert make_grid(tomllib.loads(grid_toml.to_toml(tomllib.loads(text))), "again") == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[grid]\nmethod = ["fedavg"]\n[method.fedavg]\nmeasure = "x"', "measure of fedavg"),
        ("last = -1\n[grid]\nseed = [0]", "last in g.toml"),
        ("at = [0]\n[grid]\nseed = [0]", "at in g.toml"),
        ("figure = 3\n[grid]\nseed = [0]", "figure in g.toml"),
    ],
)
def test_what_a_file_asks_to_be_shown_is_checked(text: str, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        make_grid(tomllib.loads(text), "g.toml")


def test_columns_are_a_list_or_a_text_with_commas() -> None:
    assert values_of({"columns": "a, b"}, "here") == values_of({"columns": ["a", "b"]}, "here")
