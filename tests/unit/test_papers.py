"""Papers as files: what one says, what refuses it, the words of the rules, kept results, pages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgeflock.common.errors import BadData, EdgeflockError, UsageError
from edgeflock.lab.findings.bounded import Bounded, exactly, more_than
from edgeflock.lab.papers import kept, page, shelf
from edgeflock.lab.papers.command import paper as command
from edgeflock.lab.papers.holding import seeds_of
from edgeflock.lab.papers.judging.claims import ClaimVerdict, judged, verdict
from edgeflock.lab.papers.judging.rules import RULES, Word
from edgeflock.lab.papers.judging.sheet import NumberPlace, Sheet, from_csv, to_csv
from edgeflock.lab.papers.kept import Circumstances, settings_digest
from edgeflock.lab.papers.paper import Paper, make_paper, read_paper
from edgeflock.lab.papers.shown import blocks, rulings, summary

YES, HALF, NO, NONE = Word
ROOT = Path(__file__).parents[2]

PAPER = """
[paper]
title = "A paper"
source = "Table 1"
shows = "rounds"
seeds = 3
minutes = 5
[grid]
method = ["fedtrip", "fedavg", "fedprox"]
"fedprox.mu" = [0.1, 1.0]
[run]
rounds = 30
[[case]]
name = "small"
target = 0.8
[[case]]
name = "large"
lr = 0.2
target = 0.9
[[table]]
title = "Rounds"
quantity = "rounds"
ratio = "fedtrip"
[table.paper]
fedtrip = [10, 20]
fedavg = [15, ">30"]
[[deviation]]
what = "other data"
why = "the paper's are not to be had"
[[claim]]
says = "FedAvg takes longer"
rule = "ratio"
quantity = "rounds"
of = "fedavg"
to = "fedtrip"
paper = [1.5, 1.5]
[quick]
seeds = 1
methods = ["fedtrip", "fedavg"]
cases = ["small"]
case = { rounds = 3 }
"""


def made(text: str = PAPER) -> Paper:
    return make_paper(tomllib.loads(text), "a", "a.toml")


def sheet(numbers: Mapping[tuple[str, str, str], Sequence[float | Bounded]]) -> Sheet:
    """Return numbers of seeds 0, 1, 2 ... by case, row and quantity."""
    return Sheet(
        {
            NumberPlace(*spot): {
                str(seed): value if isinstance(value, Bounded) else exactly(value)
                for seed, value in enumerate(values)
            }
            for spot, values in numbers.items()
        }
    )


def ruled(claim: str, numbers: Mapping[str, Sequence[float | Bounded]], cases: str = "small") -> ClaimVerdict:
    """Return the verdict on a claim about one case."""
    table = tomllib.loads(PAPER)
    table["claim"] = [{"says": "it", "case": cases, **tomllib.loads(claim)}]
    (one,) = make_paper(table, "a", "a.toml").claims
    return judged(one, sheet({(cases, row, one.quantity.text): values for row, values in numbers.items()}))


def test_a_paper_holds_a_grid_its_seeds_and_a_small_version() -> None:
    paper = made()
    assert len(paper.grid(range(3)).cells) == 24
    assert [cell.name for cell in paper.grid([0], quick=True).cells] == [
        "fedtrip case=small seed=0",
        "fedavg case=small seed=0",
    ]
    assert {cell.config.rounds for cell in paper.grid([0], quick=True).cells} == {3}
    assert (list(seeds_of(None, 3)), list(seeds_of("2", 3)), list(seeds_of("5-6", 3))) == (
        [0, 1, 2],
        [0, 1],
        [5, 6],
    )


def test_our_numbers_stand_beside_the_papers_with_intervals_and_ratios() -> None:
    found = sheet({
        ("small", "fedtrip", "rounds"): [10, 11, 12],
        ("small", "fedavg", "rounds"): [16, 17, more_than(30)],
        ("small", "fedprox mu=0.1", "rounds"): [20],
    })  # fmt: skip
    small, large = blocks(made(), found)
    assert small.columns == ("", "paper", "here", "seeds", "paper / fedtrip", "here / fedtrip")
    assert small.rows == (
        ("fedtrip", "10", "11 [10, 12]", "3", "1", "1"),
        ("fedavg", "15", "17 [16, ...]", "3", "1.50", "1.60 [1.55, ...]"),
        ("fedprox mu=0.1", "-", "20", "1", "-", "2.00"),
    )
    assert [row[0] for row in large.rows] == ["fedtrip", "fedavg"]
    assert large.rows[1][1] == "> 30"


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([16, 17, 18], YES),
        ([30, 31, 32], HALF),  # a third more than twice the effect, and no interval around 1.5
        ([9, 17, 18], NO),  # three seeds cannot tell
        ([8, 8, 9], NO),
        ([16, 17, more_than(30)], YES),
        ([16], HALF),
        ([], NONE),
    ],
)
def test_a_ratio_holds_in_direction_and_in_size(ours: list[float | Bounded], word: Word) -> None:
    claim = 'rule = "ratio"\nquantity = "rounds"\nof = "fedavg"\nto = "fedtrip"\npaper = 1.5'
    assert ruled(claim, {"fedavg": ours, "fedtrip": [10, 11, 12]}).word == word


BASE, UP, WIDE = [80.0, 81.0, 82.0], [83.0, 84.5, 85.0], [79.0, 84.5, 85.0]
RULED: list[tuple[str, dict[str, list[float]], Word]] = [
    ('rule = "gain"\nof = "fedtrip"\nover = "fedavg"\npaper = 3', {"fedtrip": UP}, YES),
    ('rule = "gain"\nof = "fedtrip"\nover = "fedavg"\npaper = 30', {"fedtrip": UP}, HALF),
    ('rule = "gain"\nof = "fedtrip"\nover = "fedavg"\npaper = 3', {"fedtrip": WIDE}, NO),
    ('rule = "gain"\nof = "fedtrip"\nover = "fedavg"\nmost = 2', {"fedtrip": [80.5, 81.0, 82.1]}, YES),
    ('rule = "gain"\nof = "fedtrip"\nover = "fedavg"\nmost = 2', {"fedtrip": [80.5, 83.9, 82.1]}, HALF),
    (
        'rule = "gain"\nof = "fedtrip"\nover = ["fedavg", "fedprox mu=0.1"]\nleast = 0',
        {"fedtrip": UP, "fedprox mu=0.1": [90.0, 91.0, 92.0]},
        NO,
    ),
    ('rule = "bound"\nof = "fedavg"\nleast = 70', {}, YES),
    ('rule = "bound"\nof = ["fedavg", "fedtrip"]\nleast = 70', {"fedtrip": [60.0, 61.0, 62.0]}, NO),
    ('rule = "value"\nof = "fedavg"\npaper = 81.5\nmargin = 1', {}, YES),
    ('rule = "value"\nof = "fedavg"\npaper = 85\nmargin = 1', {}, NO),
    ('rule = "value"\nof = "fedavg"\npaper = 81.5\nmargin = 1', {"fedavg": [81.0]}, HALF),
    (
        'rule = "order"\nrows = ["fedtrip", ["fedprox mu=0.1", "fedavg"]]',
        {"fedtrip": UP, "fedprox mu=0.1": BASE},
        YES,
    ),
    ('rule = "order"\nrows = ["fedtrip", "fedavg"]', {"fedtrip": WIDE}, HALF),
    ('rule = "order"\nrows = ["fedavg", "fedtrip"]', {"fedtrip": WIDE}, NO),
    ('rule = "order"\nrows = ["fedavg", "fedtrip"]\nalike = 1', {"fedtrip": [80.1, 81.1, 82.1]}, YES),
    ('rule = "best"\nof = "fedtrip"\nover = ["fedavg"]', {"fedtrip": UP}, YES),
    (
        'rule = "peak"\nrows = ["fedavg", "fedtrip"]\nat = ["fedtrip"]',
        {"fedtrip": UP},
        YES,
    ),
    ('rule = "peak"\nrows = ["fedavg", "fedtrip"]\nat = ["fedtrip"]', {"fedtrip": [70.0]}, NO),
    ('rule = "spread"\nrows = ["fedavg", "fedtrip"]\nleast = -2', {"fedtrip": BASE}, YES),
    ('rule = "near"\nof = "fedtrip"\nbest_of = ["fedavg"]\nmargin = 1', {"fedtrip": [79.9, 81.0, 81.9]}, YES),
    ('rule = "near"\nof = "fedtrip"\nbest_of = ["fedavg"]\nmargin = 1', {"fedtrip": [70.0, 71.0, 72.0]}, NO),
    ('rule = "trend"\nrows = ["fedtrip", "fedavg"]\ngoes = "falls"', {"fedtrip": UP}, YES),
    ('rule = "trend"\nrows = ["fedtrip", "fedavg"]\ngoes = "rises"', {"fedtrip": UP}, NO),
    ('rule = "trend"\nrows = ["fedtrip", "fedavg"]\ngoes = "stays"\nmargin = 1', {"fedtrip": BASE}, YES),
    ('rule = "trend"\nrows = ["fedtrip", "fedavg"]\ngoes = "stays"\nmargin = 1', {"fedtrip": [80.5]}, HALF),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "numbers", "word"), RULED)
def test_every_rule_has_its_words(claim: str, numbers: dict[str, list[float]], word: Word) -> None:
    found = ruled(claim + '\nquantity = "final_accuracy"', {"fedavg": BASE, **numbers})
    assert (found.word, "\n" in found.ground) == (word, False), found.ground


def test_no_rule_is_left_out() -> None:
    assert {re.findall(r'rule = "(\w+)"', claim)[0] for claim, _, _ in RULED} | {"ratio"} == set(RULES)


def test_a_place_of_a_claim_can_be_of_another_case_or_another_quantity() -> None:
    claim = (
        'rule = "gain"\nquantity = "final_accuracy"\nrow = "fedavg"\nmost = 2\n'
        'of = { case = "large" }\nover = { quantity = "covered" }\nsays = "it"\ncase = "small"'
    )
    (one,) = made(PAPER.partition("[[claim]]")[0] + "[[claim]]\n" + claim).claims
    spots = ("large", "fedavg", "final_accuracy"), ("small", "fedavg", "covered")
    found = sheet(dict(zip(spots, ([80.0, 81.5, 83.0], [80.0] * 3), strict=True)))
    assert (judged(one, found).word, "+1.50" in judged(one, found).ground) == (HALF, True)


def test_the_verdict_is_the_worst_of_the_claims_that_are_no_controls() -> None:
    paper = made()
    found = sheet({
        (case, row, "rounds"): values
        for case in ("small", "large")
        for row, values in {"fedtrip": [10, 11, 12], "fedavg": [16, 17, 18]}.items()
    })  # fmt: skip
    good = rulings(paper, found)
    bad = replace(good[0], word=NO)
    aside = replace(bad, claim=replace(bad.claim, aside=True))
    assert [verdict(found) for found in ([], good, [*good, bad], [*good, aside])] == [
        NONE, YES, NO, YES,
    ]  # fmt: skip
    assert summary(good, 3, quick=False) == "reproduced (1 of 1 claim reproduced, 3 seeds)"
    assert "no verdict on the paper" in summary(good, 3, quick=True)


def test_the_quick_version_judges_a_claim_by_the_rows_and_cases_that_it_runs() -> None:
    claim = (
        '[[claim]]\nsays = "it"\nrule = "order"\nquantity = "rounds"\n'
        'rows = ["fedtrip", ["fedavg", "fedprox mu=0.1"], ["fedprox mu=1.0"]]\n'
    )
    paper = made(PAPER.replace("[quick]", f"{claim}[quick]"))
    found = sheet({("small", "fedtrip", "rounds"): [10], ("small", "fedavg", "rounds"): [16]})
    assert [one.word for one in rulings(paper, found)] == [HALF, NONE]
    assert [block.title for block in blocks(paper, found, quick=True)] == ["Rounds: small"]
    ratio, order = rulings(paper, found, quick=True)
    assert (ratio.word, ratio.claim.asked["paper"], ratio.claim.cases) == (HALF, [1.5], ("small",))
    assert (order.word, order.claim.asked["rows"]) == (HALF, ["fedtrip", ["fedavg"]])


REFUSALS = [
    ("title = \"A paper\"", "", "title in [paper] of a.toml is None, allowed is a text"),
    ("seeds = 3", "seed = 3", "unknown key in [paper] of a.toml: seed, did you mean seeds?"),
    ("rounds = 30", "seed = 3", "seed in a.toml: seeds are 0, 1, 2 ..., as many as [paper] says"),
    ("[run]", "[runn]", "unknown key in a.toml: runn, known are grid"),
    ("rounds = 30", "round = 30", "unknown key in [run] of a.toml: round, did you mean rounds?"),
    ('"fedprox.mu" =', '"fedprox.muu" =', "unknown key in [grid] of a.toml: muu, did you mean mu?"),
    ('of = "fedavg"', 'of = "fedavgg"', "unknown row in [[claim]] 1 of a.toml, which the grid does not"),
    ('of = "fedavg"', 'off = "fedavg"', "unknown key in [[claim]] 1 of a.toml: off, did you mean of?"),
    ('of = "fedavg"', "", "[[claim]] 1 of a.toml has no of: the rule ratio needs of, to"),
    ('rule = "ratio"', 'rule = "ration"', "rule in [[claim]] 1 of a.toml is 'ration', allowed is ratio"),
    ("paper = [1.5, 1.5]", "paper = [1.5]", "paper in [[claim]] 1 of a.toml is [1.5], allowed"),
    ("fedavg = [15,", "fedavgg = [15,", "unknown row in [[table]] 1 of a.toml, which the grid does not"),
    ('">30"]', '30, 4]', "fedavg in [[table]] 1 of a.toml is [15, 30, 4], allowed is 2 values, one"),
    ('quantity = "rounds"\nratio', 'quantity = "round"\nratio', "quantity in [[table]] 1 of a.toml is"),
    ('why = "the', 'whyy = "the', "[[deviation]] 1 of a.toml is"),
    ('cases = ["small"]', 'cases = ["tiny"]', "cases in [quick] of a.toml is ['tiny'], allowed is some of"),
    ("case = { rounds = 3 }", "case = { round = 3 }", "unknown key in [[case]] 1 of a.toml, [quick]: round"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "sentence"), REFUSALS, ids=[sentence for _, _, sentence in REFUSALS])
def test_what_is_no_papers_file_is_refused_with_a_sentence(old: str, new: str, sentence: str) -> None:
    assert old in PAPER
    with pytest.raises(UsageError) as caught:
        made(PAPER.replace(old, new, 1))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_grid_alone_is_no_papers_file() -> None:
    with pytest.raises(UsageError, match=r"a.toml is no paper's file: it has no \[paper\]"):
        made("[run]\nrounds = 3")


# ------------------------------------------------------------------------------------------ kept results


def about(paper: Paper, **other: Any) -> Circumstances:
    whole = Circumstances(
        settings=settings_digest(paper), seeds=(0, 1, 2), quick=False, commit="0123456789",
        date="2026-11-20", machine="x86_64, 2 cores", torch="2.13.0", cells=12, of=12, seconds=60.0,
    )  # fmt: skip
    return replace(whole, **other)


KEPT: dict[str, list[float | Bounded]] = {"fedtrip": [10, 11, 12], "fedavg": [16, more_than(30), 18]}
FOUND = sheet({
    (case, row, "rounds"): values
    for case in ("small", "large")
    for row, values in KEPT.items()
})  # fmt: skip


def test_numbers_come_back_from_their_file() -> None:
    assert from_csv(to_csv(FOUND), "a.csv") == FOUND
    with pytest.raises(BadData, match=r"line 2 of a.csv is no number of a run: x,y"):
        from_csv(to_csv(FOUND).partition("\n")[0] + "\nx,y\n", "a.csv")


def test_the_settings_are_what_the_file_says_of_runs_whatever_the_seeds_and_wherever_the_data_lie() -> None:
    mine = settings_digest(made())
    assert settings_digest(made(PAPER.replace("rounds = 30", "rounds = 30\nprocesses = 2"))) == mine
    assert settings_digest(made(PAPER.replace("seeds = 3", "seeds = 9"))) == mine
    assert settings_digest(made(PAPER + "[devices]\nquota = '2ms'")) != mine
    with pytest.raises(UsageError, match=r"unknown key in \[devices\] of a.toml: quot"):
        made(PAPER + "[devices]\nquot = '2ms'")
    for old, new in (
        ("rounds = 30", "rounds = 31"),
        ("target = 0.9", "target = 0.95"),
        ("lr = 0.2", "lr = 0.3"),
    ):
        assert settings_digest(made(PAPER.replace(old, new))) != mine


def test_a_kept_result_comes_back_and_one_of_other_settings_or_by_hand_is_refused(tmp_path: Path) -> None:
    paper = made()
    assert kept.read(tmp_path, paper) is None
    kept.write(tmp_path, "a", about(paper), FOUND)
    found = kept.read(tmp_path, paper)
    assert found is not None
    assert (found.sheet, found.about) == (FOUND, about(paper))
    with pytest.raises(UsageError, match=r"a.csv is of other settings \(\w{12}\) than a.toml has now"):
        kept.read(tmp_path, made(PAPER.replace("rounds = 30", "rounds = 40")))
    numbers = tmp_path / "a.csv"
    numbers.write_text(numbers.read_text().replace("16", "15"))
    with pytest.raises(BadData, match=r"a.csv is not what fl-lab paper has written"):
        kept.read(tmp_path, paper)


def shelved(folder: Path) -> Path:
    (folder / "a.toml").write_text(PAPER)
    return folder / "a.toml"


def test_the_pages_say_what_the_files_say(tmp_path: Path) -> None:
    path = shelved(tmp_path)
    text = "<!-- papers in short -->\n<!-- /papers -->\n<!-- papers -->\nold\n<!-- /papers -->\n"
    new = page.renewed(text, tmp_path)
    assert "| A paper | [Table 1](docs/papers.md#a) not tried |" in new
    assert "| [A paper, Table 1](#a) | rounds | - | - | not tried |" in new
    assert "- Claimed: FedAvg takes longer." in new
    path.write_text(PAPER.replace("[quick]", "aside = true\n[quick]"))
    assert "- Control: FedAvg takes longer." in page.renewed(text, tmp_path)
    path.write_text(PAPER)
    kept.write(tmp_path / "results", "a", about(read_paper(path)), FOUND)
    path.write_text(PAPER.replace("[quick]", "found = 'xi was looked at.'\n[quick]"))
    new = page.renewed(text, tmp_path)
    assert "FedAvg takes longer, reproduced: xi was looked at.\n" in new
    assert "| A paper | [Table 1](docs/papers.md#a) **reproduced** |" in new
    assert "| [A paper, Table 1](#a) | rounds | 1 of 1 | 3 | **reproduced** |" in new
    assert (
        "| FedAvg takes longer | reproduced | 2 of 2 cases: small: fedavg to fedtrip 1.60 [1.50, ...]" in new
    )
    assert page.renewed(new, tmp_path) == new


def test_the_command_shows_a_kept_result_and_refuses_with_sentences(tmp_path: Path) -> None:
    path = shelved(tmp_path)

    def said(*words: str) -> Any:
        return CliRunner().invoke(command, list(words))

    with pytest.raises(UsageError, match="a is not tried: there is no result of it"):
        said_of(said(str(path), "--show"))
    kept.write(tmp_path / "results", "a", about(read_paper(path)), FOUND)
    shown = said(str(path), "--show").output
    assert "verdict: reproduced (1 of 1 claim reproduced, 3 seeds)" in shown
    assert "other data: the paper's are not to be had" in shown
    for words, sentence in (
        (("nothing.toml",), "there is no paper's file 'nothing.toml'"),
        (("fedtripp",), "unknown paper: fedtripp"),
        ((str(path), "--seeds", "0"), "--seeds is '0', allowed is a number from 1"),
        ((str(path), "--seeds", "3-1"), "allowed is a first seed that is not above the last"),
    ):
        with pytest.raises(EdgeflockError, match=re.escape(sentence)):
            said_of(said(*words))


def said_of(result: Any) -> None:
    """Raise what a command ended with."""
    if result.exception is not None:
        raise result.exception


# ------------------------------------------------------------------------------------- what comes with it


@pytest.mark.parametrize("name", shelf.names())
def test_every_paper_that_comes_with_it_is_sound(name: str) -> None:
    paper = read_paper(shelf.find(name))
    assert paper.claims
    assert paper.deviations
    assert paper.quick
    text = shelf.find(name).read_text("utf-8")
    assert f"fl-lab paper {name}" in text


def test_the_generated_parts_are_up_to_date() -> None:
    """If this fails: make papers."""
    text = "".join((ROOT / name).read_text("utf-8") for name in ("docs/papers.md", "README.md"))
    assert page.renewed(text) == text
    assert [match["what"] for match in page.MARKED.finditer(text)] == ["papers", "papers in short"]
