"""Partitions: what every scheme promises, on labels of any kind."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.datasets.kit.base import Dataset, Part
from edgeflock.common.errors import BadValue, UnknownName
from edgeflock.common.partitions.kit.assign import (
    Partition,
    assign,
    cut,
    local_test,
    parse,
    public,
    public_split,
    union,
)
from edgeflock.common.partitions.kit.base import Labels, Shards
from edgeflock.common.partitions.kit.coverage import coverage
from edgeflock.common.partitions.kit.registry import schemes
from edgeflock.lab.reference.partition import check_picture, partition
from edgeflock.lab.reference.partition_chart import lines, shade, show_in_colour
from edgeflock.lab.reference.partition_rows import describe
from edgeflock.server.config import ServerConfig
from edgeflock.server.start.resolve import resolve

TEXTS = {
    "iid": "iid",
    "dirichlet": "dirichlet:0.3",
    "dirichlet-draws": "dirichlet-draws:0.3",
    "dirichlet-equal": "dirichlet-equal:0.3",
    "classes": "classes:2",
    "random-classes": "random-classes:2",
    "sizes": "sizes:3,2",
    "orthogonal": "orthogonal:2",
    "quantity": "quantity:0.5",
    "fedadm": "fedadm:4",
    "natural": "natural",
}
WHOLE = (
    "iid",
    "dirichlet:0.1",
    "dirichlet:5",
    "quantity:0.2",
    "orthogonal:2",
    "natural",
    "fedadm:1",
    "fedadm:2",
    "fedadm:4",
)
LABELS = st.lists(st.integers(0, 6), min_size=12, max_size=120).map(
    lambda drawn: np.array([*range(7), *drawn], np.int64)
)
SHARDS = st.integers(2, 9)
SEEDS = st.integers(0, 2**31)
few = settings(max_examples=40, deadline=None)


def split(text: str, labels: Labels, shards: int, seed: int = 0, samples: int = 0) -> Shards:
    """Split with twelve groups that have nothing to do with the labels; sizes are those of two clients."""
    shards = 2 if text == TEXTS["sizes"] else shards
    return parse(text).split(labels, np.arange(len(labels)) % 12, shards, seed, samples)


def digest(shards: Shards) -> str:
    text = json.dumps([[int(row) for row in shard] for shard in shards])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_every_scheme_is_tested_here() -> None:
    assert set(TEXTS) == set(schemes())


@few
@given(text=st.sampled_from(WHOLE), labels=LABELS, shards=SHARDS, seed=SEEDS)
def test_nothing_is_lost_and_nothing_given_twice(text: str, labels: Labels, shards: int, seed: int) -> None:
    cut = split(text, labels, shards, seed)
    assert len(cut) == shards
    assert sorted(np.concatenate(cut)) == list(range(len(labels)))


@few
@given(text=st.sampled_from(sorted(TEXTS.values())), labels=LABELS, shards=SHARDS, seed=SEEDS)
def test_a_partition_is_a_function_of_its_seed_and_sorted(
    text: str, labels: Labels, shards: int, seed: int
) -> None:
    first, second = split(text, labels, shards, seed), split(text, labels, shards, seed)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == np.int64
        assert (np.diff(one) > 0).all()


@pytest.mark.parametrize(
    "text",
    [
        *("iid", "dirichlet:0.3", "dirichlet-draws:0.3", "classes:2", "quantity:0.5"),
        *("dirichlet-equal:0.3", "random-classes:2", "sizes:60,40,20,10"),
    ],
)
def test_another_seed_is_another_partition(text: str) -> None:
    labels = np.arange(200) % 10
    assert digest(split(text, labels, 4, 1)) != digest(split(text, labels, 4, 2))


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("iid", "57d30c80fcbd5de3"),
        ("dirichlet:0.3", "53439f04383ee781"),
        ("dirichlet-draws:0.3", "33864ffe92e4d003"),
        ("classes:2", "081904f8e3997c2a"),
        ("orthogonal:2", "40ee28daf725b2e2"),
        ("quantity:0.5", "bb9a48661858e3b3"),
        ("dirichlet-equal:0.3", "9963bbad0ee20b79"),
        ("random-classes:2", "5c7a819f62b4d49a"),
        ("sizes:90,60,45,5,1", "ffd384e9bd2e5015"),
    ],
)
def test_devices_with_another_numpy_cut_the_same_shards(text: str, golden: str) -> None:
    """Every device cuts its own shard: a change of these bits would give one sample to two devices."""
    assert digest(split(text, np.arange(300) % 10, 5, 42, 40)) == golden


@few
@given(text=st.sampled_from(sorted(TEXTS.values())), labels=LABELS, shards=SHARDS, samples=st.integers(1, 15))
def test_samples_per_client_limit_a_shard(text: str, labels: Labels, shards: int, samples: int) -> None:
    if text.startswith("dirichlet-equal"):
        samples = min(samples, len(labels) // shards)
    free, limited = split(text, labels, shards), split(text, labels, shards, samples=samples)
    if text.startswith(("dirichlet-draws", "dirichlet-equal")):
        assert [len(shard) for shard in limited] == [samples] * shards
        return
    for whole, part in zip(free, limited, strict=True):
        assert len(part) == min(samples, len(whole))
        assert np.isin(part, whole).all()


@few
@given(labels=LABELS, shards=SHARDS, seed=SEEDS)
def test_iid_shards_are_equal_in_size(labels: Labels, shards: int, seed: int) -> None:
    sizes = [len(shard) for shard in split("iid", labels, shards, seed)]
    assert max(sizes) - min(sizes) <= 1


@few
@given(labels=LABELS, shards=SHARDS, seed=SEEDS, each=st.integers(1, 7))
def test_a_client_holds_no_more_classes_than_promised(
    labels: Labels, shards: int, seed: int, each: int
) -> None:
    cut = split(f"classes:{each}", labels, shards, seed)
    held = np.concatenate(cut)
    assert len(set(held)) == len(held)
    assert all(len(set(labels[shard])) <= each for shard in cut)
    assert len(set(labels[held])) == min(7, shards * each)
    assert np.isin(labels, labels[held]).sum() == len(held), "a class that is held is held whole"


@pytest.mark.parametrize(("clients", "each"), [(4, 3), (10, 2), (7, 5), (20, 1), (3, 10)])
def test_a_client_holds_exactly_k_classes_where_there_are_enough_samples(clients: int, each: int) -> None:
    labels = np.arange(2000) % 10
    cut = split(f"classes:{each}", labels, clients)
    assert [len(set(labels[shard])) for shard in cut] == [each] * clients
    holders = [sum(label in labels[shard] for shard in cut) for label in range(10)]
    assert max(holders) - min(holders) <= 1


@few
@given(labels=LABELS, shards=st.integers(3, 9), seed=SEEDS)
def test_orthogonal_clusters_share_no_class(labels: Labels, shards: int, seed: int) -> None:
    cut = split("orthogonal:3", labels, shards, seed)
    held = [set(labels[np.concatenate(cut[cluster::3])]) for cluster in range(3)]
    assert held == [{0, 1, 2}, {3, 4}, {5, 6}]


def test_a_small_alpha_skews_labels_and_a_large_one_does_not() -> None:
    labels = np.arange(5000) % 10

    def widest(text: str) -> float:
        return float(
            np.mean([np.bincount(labels[s]).max() / len(s) for s in split(text, labels, 10) if len(s)])
        )

    assert widest("dirichlet:0.1") > 0.35
    assert widest("dirichlet:1000") < 0.15
    assert widest("dirichlet-draws:0.1") > 0.35
    assert widest("dirichlet-draws:1000") < 0.15
    assert widest("quantity:0.3") < 0.3


def test_quantity_skews_sizes_only() -> None:
    labels = np.arange(10_000) % 10
    sizes = [len(shard) for shard in split("quantity:0.3", labels, 10)]
    assert max(sizes) > 3 * np.median(sizes)
    big = max(split("quantity:0.3", labels, 10), key=len)
    assert np.bincount(labels[big]).std() / len(big) < 0.01


def test_draws_overlap_between_clients_but_not_within_one() -> None:
    labels = np.arange(100) % 5
    cut = split("dirichlet-draws:1", labels, 10, samples=50)
    assert all(len(set(shard)) == 50 for shard in cut)
    assert len(np.unique(np.concatenate(cut))) < 500


def test_draws_follow_the_weights_of_the_client() -> None:
    """One draw each, equal weights: over many clients the labels come as often as they are."""
    labels = np.repeat([0, 1], [3000, 1000])
    drawn = np.concatenate(split("dirichlet-draws:1000000", labels, 2000, samples=1))
    assert np.mean(labels[drawn]) == pytest.approx(0.25, abs=0.03)


def test_an_alpha_too_small_for_floats_gives_one_client_the_class() -> None:
    labels = np.arange(60) % 3
    for shard in split("dirichlet:1e-320", labels, 4):
        assert all(count in (0, 20) for count in np.bincount(labels[shard], minlength=3))
    assert all(
        len(set(labels[shard])) == 1 for shard in split("dirichlet-draws:1e-320", labels, 4, samples=20)
    )


@few
@given(labels=LABELS, shards=SHARDS, seed=SEEDS, each=st.integers(1, 7))
def test_random_classes_gives_everybody_as_much_of_classes_that_are_cut_equally(
    labels: Labels, shards: int, seed: int, each: int
) -> None:
    cut = split(f"random-classes:{each}", labels, shards, seed)
    held = np.concatenate(cut)
    assert len(set(held)) == len(held), "no sample is held twice"
    assert len({len(shard) for shard in cut}) == 1
    for shard in filter(len, cut):
        assert len(set(np.unique(labels[shard], return_counts=True)[1])) == 1
        assert len(set(labels[shard])) == each


def test_random_classes_are_drawn_by_each_client_alone() -> None:
    """Four subsets of three cover 7.6 of ten classes in the mean, as pFedMo's Fig. 4 does."""
    labels = np.arange(600) % 10
    drawn = [
        set(labels[shard]) for seed in range(400) for shard in split("random-classes:3", labels, 4, seed)
    ]
    covered = [len(set.union(*drawn[start : start + 4])) for start in range(0, 1600, 4)]
    assert np.mean(covered) == pytest.approx(10 * (1 - 0.7**4), abs=0.15)
    assert np.bincount([label for mine in drawn for label in mine]).std() < 40
    more = split("random-classes:3", labels, 9, 5)
    assert [set(labels[shard]) for shard in split("random-classes:3", labels, 4, 5)] == [
        set(labels[shard]) for shard in more[:4]
    ], "who else takes part changes nothing of what a client draws"


def test_sizes_for_other_clients_are_refused_before_a_file_is_read() -> None:
    with pytest.raises(BadValue, match="as many sizes as there are clients, 4, here are 2"):
        resolve(ServerConfig(partition="sizes:5,6", dataset="mnist"))
    assert resolve(ServerConfig(partition="sizes:5, 6", clients=2)).partition == "sizes:5,6"


def test_sizes_are_those_that_are_written_and_shards_look_alike() -> None:
    labels = np.arange(6000) % 10
    cut = split("sizes:500,1250,1750,2500", labels, 4)
    assert [len(shard) for shard in cut] == [500, 1250, 1750, 2500]
    assert sorted(np.concatenate(cut)) == list(range(6000))
    assert np.bincount(labels[cut[3]]).std() / 2500 < 0.01


@few
@given(labels=LABELS, shards=SHARDS, seed=SEEDS, alpha=st.sampled_from(["1e-320", "0.1", "10"]))
def test_dirichlet_equal_gives_everybody_as_much_and_nothing_twice(
    labels: Labels, shards: int, seed: int, alpha: str
) -> None:
    cut = split(f"dirichlet-equal:{alpha}", labels, shards, seed)
    held = np.concatenate(cut)
    assert len(set(held)) == len(held)
    assert [len(shard) for shard in cut] == [len(labels) // shards] * shards


def test_dirichlet_equal_is_skewed_by_a_small_alpha_and_takes_what_is_left_at_the_end() -> None:
    labels = np.arange(5000) % 10
    skewed, even = split("dirichlet-equal:0.1", labels, 10), split("dirichlet-equal:1000", labels, 10)
    widest = [np.mean([np.bincount(labels[s]).max() / len(s) for s in cut]) for cut in (skewed, even)]
    assert widest[0] > 0.35
    assert widest[1] < 0.15
    assert sorted(np.concatenate(skewed)) == list(range(5000))
    few_samples = split("dirichlet-equal:0.1", labels, 10, samples=50)
    assert np.mean([np.bincount(labels[s]).max() / 50 for s in few_samples]) > 0.5


def test_classes_that_nobody_holds_are_counted_and_named() -> None:
    labels = np.arange(120) % 12
    found = coverage(labels, [np.array([0, 1, 12]), np.array([5])])
    assert (found.held, found.classes, found.missing) == (3, 12, (2, 3, 4, 6, 7, 8, 9, 10, 11))
    assert str(found) == ("3 of 12 classes are held by somebody, nobody holds 2, 3, 4, 6, 7, 8, 9, 10, 11")
    assert str(coverage(np.arange(30), [np.array([0])])).endswith(
        "nobody holds 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 17 more"
    )
    whole = coverage(labels, [np.arange(120)])
    assert str(whole) == "12 of 12 classes are held by somebody"
    assert found.is_told("iid")
    assert whole.is_told("random-classes:3")
    assert not whole.is_told("classes:3")


def test_the_command_says_which_classes_nobody_holds() -> None:
    title = shown("--partition", "random-classes:3", "--clients", "4").splitlines()[0]
    assert title.endswith("; 7 of 10 classes are held by somebody, nobody holds 0, 2, 6")
    assert "held by" not in shown("--partition", "iid", "--clients", "4")
    found = json.loads(shown("--partition", "random-classes:3", "--clients", "4", "--json"))
    assert found["coverage"] == {"classes": 10, "missing": [0, 2, 6]}


def by_the_book(case: int, labels: Labels, n: int) -> list[list[int]]:
    """FedADM's cases as METHODS 4.3 words them, sample by sample."""
    count = int(labels.max() - labels.min()) + 1
    shards: list[list[int]] = [[] for _ in range(n)]

    def least_filled(client: int) -> int:
        same = [c for c in range(n) if c % count == client]
        return min(same, key=lambda c: len(shards[c])) if n > count else client

    first = -(-min(n, count) // 2)
    for i, label in enumerate(labels - labels.min()):
        if case == 1:
            shards[i % n].append(i)
        elif case == 2:
            shards[least_filled(int(label % n))].append(i)
        elif case == 3:
            for shard in shards:
                shard.append(i)
        elif label < (count - 1) / 2:
            shards[least_filled(i % first)].append(i)
        else:
            shards[least_filled(int(label) % (min(n, count) - first) + first)].append(i)
    return shards


@few
@given(case=st.integers(1, 4), labels=LABELS, n=st.integers(2, 23))
def test_fedadm_s_cases_are_the_written_ones(case: int, labels: Labels, n: int) -> None:
    assert [list(shard) for shard in split(f"fedadm:{case}", labels, n)] == by_the_book(case, labels, n)


@pytest.mark.parametrize("case", [1, 2, 3, 4])
def test_one_client_has_everything_in_each_of_fedadm_s_cases(case: int) -> None:
    assert [len(shard) for shard in split(f"fedadm:{case}", np.arange(50) % 10, 1)] == [50]


def test_natural_gives_every_subject_to_one_client() -> None:
    subjects = np.array([7, 7, 3, 9, 3, 9, 9])
    assert [list(shard) for shard in parse("natural").split(np.zeros(7, np.int64), subjects, 3, 0)] == [
        [2, 4],
        [0, 1],
        [3, 5, 6],
    ]
    fewer = parse("natural").split(np.zeros(7, np.int64), subjects, 2, 0)
    assert [list(shard) for shard in fewer] == [[2, 3, 4, 5, 6], [0, 1]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dirichlet", "partition is 'dirichlet', allowed is dirichlet:ALPHA with a number > 0"),
        ("dirichlet:0", "dirichlet:ALPHA"),
        ("dirichlet:-1", "dirichlet:ALPHA"),
        ("dirichlet:nan", "dirichlet:ALPHA"),
        ("dirichlet:inf", "dirichlet:ALPHA"),
        ("dirichlet:x", "dirichlet:ALPHA"),
        ("classes:0", "classes:K"),
        ("classes:1.5", "classes:K with a whole number >= 1"),
        ("fedadm:5", "fedadm:CASE with a whole number from 1 to 4"),
        ("fedadm:0", "fedadm:CASE"),
        ("iid:3", "partition is 'iid:3', allowed is iid"),
        ("orthogonal:", "orthogonal:C"),
        ("sizes:5,,5", "sizes:N,N,... with whole numbers >= 1"),
        ("sizes:5,0", "sizes:N,N,..."),
        ("random-classes:2,3", "random-classes:K with a whole number >= 1"),
    ],
)
def test_a_wrong_number_is_refused_with_what_is_allowed(text: str, sentence: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse(text)
    assert sentence in str(refused.value)


def test_an_unknown_scheme_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'dirichlet:ALPHA'"):
        parse("dirichlt:0.5")


@pytest.mark.parametrize(
    ("text", "shards", "samples", "sentence"),
    [
        ("classes:8", 4, 0, "classes per client is 8, allowed is at most the 7 classes"),
        ("orthogonal:8", 20, 0, "at most the 7 classes and the 20 clients"),
        ("orthogonal:3", 2, 0, "at most the 7 classes and the 2 clients"),
        ("natural", 13, 0, "clients is 13, allowed is at most 12"),
        ("dirichlet-draws:1", 2, 71, "samples per client is 71, allowed is at most the 70"),
        ("dirichlet-equal:1", 4, 18, "samples per client is 18, allowed is at most 17: 70 samples for 4"),
        ("random-classes:8", 4, 0, "classes per client is 8, allowed is at most the 7 classes"),
        ("sizes:9,8", 3, 0, "'sizes:9,8', allowed is as many sizes as there are clients, 3, here are 2"),
        (
            "sizes:50,21",
            2,
            0,
            "allowed is sizes that add up to at most the 70 samples that there are, not 71",
        ),
        ("iid", 0, 0, "clients is 0"),
        ("iid", 2, -1, "samples per client is -1"),
    ],
)
def test_what_the_data_cannot_give_is_refused(text: str, shards: int, samples: int, sentence: str) -> None:
    with pytest.raises(BadValue) as refused:
        split(text, np.arange(70) % 7, shards, samples=samples)
    assert sentence in str(refused.value)


def test_natural_needs_groups() -> None:
    with pytest.raises(BadValue, match="does not say whom"):
        parse("natural").split(np.zeros(5, np.int64), None, 2, 0)


@pytest.mark.parametrize(
    "text",
    ["iid", "dirichlet:0.25", "classes:3", "dirichlet:1e-07", "dirichlet:0.1234567891", "sizes:5000,12500"],
)
def test_the_text_of_a_partition_parses_to_itself(text: str) -> None:
    assert str(parse(text)) == text
    assert isinstance(parse(text), Partition)


def test_more_clients_than_samples_leaves_empty_shards() -> None:
    assert sorted(len(shard) for shard in split("iid", np.zeros(3, np.int64), 5)) == [0, 0, 1, 1, 1]


def test_public_samples_are_held_back_from_every_client() -> None:
    digits = datasets.load("digits")
    kept, held = public_split(3823, 0.05, 3)
    assert len(held) == 191
    assert sorted([*kept, *held]) == list(range(3823))
    shards = assign(digits, partition="iid", seed=3, shards=4, samples_per_client=0, public_fraction=0.05)
    assert np.array_equal(np.sort(np.concatenate(shards)), kept)
    assert np.array_equal(public(digits, public_fraction=0.05, seed=3).y, digits.train.y[held])
    assert len(public_split(10, 0.0, 1)[1]) == 0


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_public_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(BadValue, match="public fraction"):
        public_split(10, fraction, 0)


def test_a_client_cuts_its_shard_ready_to_train_on() -> None:
    digits = datasets.load("digits")
    shard = cut(digits, partition="classes:2", seed=0, shards=5, samples_per_client=50, index=4)
    assert shard.x.shape == (50, 1, 8, 8)
    assert shard.x.dtype == np.float32
    assert shard.x.flags["C_CONTIGUOUS"]
    assert shard.x.max() == 1.0
    with pytest.raises(BadValue, match="0 to 4"):
        cut(digits, partition="iid", seed=0, shards=5, index=5)


def test_the_union_holds_every_sample_once() -> None:
    digits = datasets.load("digits")
    assert len(union(digits, partition="fedadm:3", seed=0, shards=4)) == 3823
    assert len(union(digits, partition="iid", seed=0, shards=4, samples_per_client=100)) == 400


def test_the_local_test_has_the_label_distribution_of_the_shard() -> None:
    digits = datasets.load("digits")
    shard = cut(digits, partition="dirichlet:0.3", seed=5, shards=4, index=1)
    test = local_test(digits, shard, seed=5, index=1)
    held = np.bincount(shard.y, minlength=10) / len(shard)
    drawn = np.bincount(test.y, minlength=10) / len(test)
    assert np.abs(held - drawn).max() < 0.01
    assert len(np.unique(test.x.reshape(len(test), -1), axis=0)) == len(test)
    assert np.array_equal(test.x, local_test(digits, shard, seed=5, index=1).x)


def test_an_empty_shard_has_an_empty_local_test() -> None:
    digits = datasets.load("digits")
    empty = digits.ready(digits.train.take(np.zeros(0, np.int64)))
    assert len(local_test(digits, empty, seed=0, index=0)) == 0


def shown(*words: str) -> str:
    done = CliRunner().invoke(partition, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_prints_what_every_client_holds() -> None:
    title, head, *rows = shown("--partition", "classes:2", "--clients", "4").splitlines()
    held = sum(int(row.split()[1]) for row in rows)
    assert title == f"digits, classes:2, 4 clients, seed 0: 3823 samples, {3823 - held} unused; 8 of 10 " + (
        "classes are held by somebody, nobody holds 3, 9"
    )
    assert head.split()[:2] == ["client", "samples"]
    assert len(rows) == 4
    for row in rows:
        _, samples, _, *counts = row.split()
        assert sum(map(int, counts)) == int(samples)
        assert sum(count != "0" for count in counts) == 2


def test_the_command_prints_json() -> None:
    found = json.loads(shown("--json", "--partition", "fedadm:3", "--clients", "3"))
    assert found["shared"] == 3823
    assert [row["samples"] for row in found["rows"]] == [3823] * 3


@pytest.mark.parametrize("clients", ["1", "4", "60"])
@pytest.mark.parametrize("name", ["p.png", "p.svg"])
def test_the_command_draws(tmp_path: Path, clients: str, name: str) -> None:
    pytest.importorskip("matplotlib", reason="edgeflock[lab] is not installed")
    shown("--partition", "dirichlet:0.5", "--clients", clients, "--draw", str(tmp_path / name))
    start = (tmp_path / name).read_bytes()[:40]
    assert start.startswith(b"\x89PNG") if name == "p.png" else b"<?xml" in start


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"ending in \.png"):
        check_picture(tmp_path / "p.gif")
    with pytest.raises(BadValue, match="folder that exists"):
        check_picture(tmp_path / "no" / "p.png")


def test_many_classes_are_shown_as_shades(tmp_path: Path) -> None:
    y = np.arange(200) % 40
    np.savez(
        tmp_path / "many.npz",
        x=np.zeros((200, 2), np.uint8),
        y=y,
        x_test=np.zeros((40, 2), np.uint8),
        y_test=y[:40],
    )
    output = shown(
        "--dataset", "many", "--data-root", str(tmp_path), "--clients", "4", "--partition", "orthogonal:4"
    )
    assert output.splitlines()[2].endswith("█" * 10 + "·" * 30)
    assert [shade(count, 4) for count in range(5)] == list("·░▒▓█")


@pytest.mark.parametrize("classes", [10, 40])
def test_colours_change_nothing_of_what_is_said(classes: int, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich", reason="edgeflock[lab] is not installed")
    y = np.arange(400) % classes
    part = Part(np.zeros((400, 2), np.uint8), y)
    found = describe(Dataset("d", classes, part, part), partition="iid", clients=3, seed=0)
    assert show_in_colour(found)
    printed = capsys.readouterr().out.splitlines()
    assert [line[:40] for line in printed] == [line[:40] for line in lines(found)]
    assert max(map(len, printed[1:])) <= 80
    assert lines(found)[0] == printed[0]
