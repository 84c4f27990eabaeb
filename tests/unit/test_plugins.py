"""The one door for foreign code: references, entry points, and what no message may make anybody import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from edgeflock.common import listing
from edgeflock.common.datasets.kit import augment
from edgeflock.common.datasets.kit import registry as datasets
from edgeflock.common.errors import BadData, BadValue, UnknownName
from edgeflock.common.foreign import ForeignError, blamed
from edgeflock.common.partitions.kit import assign
from edgeflock.common.plugins import loading
from edgeflock.common.plugins.digest import Code, differences, digest, of_device, of_run
from edgeflock.common.plugins.loading import PluginError, allow, find, installed, load, named
from edgeflock.methods.kit import registry as methods
from edgeflock.server.config import ServerConfig, references
from edgeflock.server.start.plugins import code_of
from edgeflock.server.start.resolve import resolve
from support.federation import Federation


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, which is forgotten afterwards with all that was imported from it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(loading, "_allowed", set())
    installed.cache_clear()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    installed.cache_clear()


def install(site: Path, package: str, point: str, code: str, group: str = "edgeflock.methods") -> None:
    """Put a module and its metadata where an installer would."""
    (site / f"{package}.py").write_text(code)
    info = site / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    installed.cache_clear()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = {}['weights']", r"--model: importing theirs failed: KeyError: weights \(theirs.py:1\)"),
        ("\n\ndef f(:\n", r"SyntaxError: invalid syntax \(theirs.py:3\)"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3 \(theirs.py:2\)"),
        ("\nimport pandsa\n", r"ModuleNotFoundError: No module named 'pandsa' \(theirs.py:2\)"),
        ("from math import sqtr", r"ImportError: cannot import name 'sqtr' .*\(theirs.py:1\)"),
    ],
)
def test_what_a_users_module_raises_is_the_users_with_file_and_line(
    site: Path, code: str, words: str
) -> None:
    (site / "theirs.py").write_text(code)
    with pytest.raises(PluginError, match=words) as raised:
        load("theirs:NAME", "--model")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("reference", ["mine", ":NAME", "a b:NAME", "no.such_module:NAME", "math:NAME"])
def test_a_reference_to_nothing_is_a_wrong_value_of_its_option(site: Path, reference: str) -> None:
    with pytest.raises(BadValue, match=r"--task is .*, allowed is package.module:TASK, importable from here"):
        load(reference, "--task", "TASK")


def test_an_entry_point_is_listed_without_being_imported_and_found_by_its_name(site: Path) -> None:
    install(site, "theirs", "better = theirs:METHOD", "METHOD = 7")
    (plugin,) = installed("methods")["better"]
    assert (plugin.origin, plugin.reference) == ("theirs 1.2", "theirs:METHOD")
    assert "theirs" not in sys.modules
    assert find("methods", "better", int) == 7
    assert find("methods", "other", int) is None
    assert find("models", "better", int) is None


def test_an_entry_point_that_is_not_what_it_should_be_names_its_package(site: Path) -> None:
    install(site, "theirs", "better = theirs:METHOD", "METHOD = 7")
    install(site, "gone", "lost = gone:METHOD", "")
    with pytest.raises(
        PluginError, match=r"method better of theirs is of the type int, wanted is builtins.str"
    ):
        find("methods", "better", str)
    with pytest.raises(
        PluginError, match=r"method lost of gone is 'gone:METHOD', .*there is no METHOD in gone"
    ):
        find("methods", "lost", str)


def test_code_of_ours_that_is_named_as_a_reference_stays_ours(site: Path) -> None:
    load("edgeflock.methods.fedavg:METHOD", "--method")
    with pytest.raises(UnknownName) as raised:
        methods.load("fedavgg")
    assert blamed(raised.value) == ""


def test_two_packages_of_one_name_are_told_apart_by_their_owner(site: Path) -> None:
    install(site, "one", "better = one:METHOD", "METHOD = 1")
    install(site, "two", "better = two:METHOD", "METHOD = 2")
    with pytest.raises(
        PluginError, match=r"method 'better' is brought by (one and two|two and one): uninstall"
    ):
        find("methods", "better", int)


def test_a_name_imports_nothing_that_this_process_was_not_told_to_allow(site: Path) -> None:
    (site / "theirs.py").write_text("METHOD = 7")
    with pytest.raises(PluginError, match="not allowed: start with --allow-code theirs:METHOD"):
        find("methods", "theirs:METHOD", int)
    assert "theirs" not in sys.modules
    allow("theirs:METHOD", "--allow-code")
    assert find("methods", "theirs:METHOD", int) == 7
    with pytest.raises(BadValue, match=r"\(there is no METOD in theirs, did you mean METHOD\?\)"):
        load("theirs:METOD", "--method")
    with pytest.raises(PluginError, match="not allowed"):  # nor another name of the same module
        find("methods", "theirs:OTHER", int)


def test_a_method_a_partition_and_a_data_set_come_by_the_same_door(site: Path) -> None:
    install(site, "theirs", "better = theirs:METHOD", METHOD)
    install(site, "cuts", "halves = cuts:SCHEME", SCHEME, "edgeflock.partitions")
    install(site, "sets", "four = sets:ENTRY", ENTRY, "edgeflock.datasets")
    assert methods.load("better").summary == "as FedAvg"
    assert "better" in listing.methods()
    data = datasets.load("four")
    assert (len(data.train), datasets.load("four:unit").name) == (4, "four:unit")
    partition = assign.parse("halves:0.5")
    assert str(partition) == "halves:0.5"
    assert [len(shard) for shard in partition.split(data.train.y, None, 2, 0)] == [2, 2]
    assert str(assign.parse(named("cuts:SCHEME:0.25"))) == "cuts:SCHEME:0.25"
    with pytest.raises(UnknownName, match="did you mean 'better'"):
        methods.load("beter")


def test_a_partition_that_fails_or_shares_out_what_is_not_there_is_its_authors(site: Path) -> None:
    cut, labels = "np.array_split(np.arange(len(pool)), 2)", np.zeros(4, np.int64)
    (site / "cuts.py").write_text(SCHEME.replace(cut, "np.ones(3) @ np.ones(4)"))
    with pytest.raises(ForeignError, match=r"the partition cuts:SCHEME:1.0 failed: .*\(cuts.py:6\)"):
        assign.parse(named("cuts:SCHEME:1")).split(labels, None, 2, 0)
    (site / "odd.py").write_text(SCHEME.replace(cut, "[pool.labels + 9]"))
    with pytest.raises(BadValue, match="it makes 1 arrays, wanted are 2 of whole numbers below 4"):
        assign.parse(named("odd:SCHEME:1")).split(labels, None, 2, 0)


def test_what_a_plug_in_raises_anywhere_is_named_with_its_line_and_is_no_bug_of_ours(site: Path) -> None:
    (site / "theirs.py").write_text("def work():\n    return {}['x']\n")
    work = load("theirs:work", "--method")
    with pytest.raises(KeyError) as raised:
        work()
    assert blamed(raised.value) == "theirs failed: KeyError: x (theirs.py:2)"
    with pytest.raises(ZeroDivisionError) as ours:
        _ = 1 / 0
    assert blamed(ours.value) == ""


def test_the_first_method_of_the_page_takes_half_of_fedavg_s_step(site: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plug-ins.md").read_text("utf-8")
    (site / "mine.py").write_text(page.partition("`mine.py`:\n\n```python\n")[2].partition("```")[0])
    steps = []
    for name in (named("mine:METHOD"), "fedavg"):
        played = Federation(tmp_path / name.replace(":", "-"), methods.load(name), {}, sizes=(20, 30))
        before = played.learner.state.model.clone()
        played.round()
        steps.append(played.learner.state.model - before)
    torch.testing.assert_close(2 * steps[0], steps[1], rtol=0, atol=1e-6)


def test_a_transform_changes_the_samples_of_a_step_in_the_order_that_is_said(site: Path) -> None:
    install(site, "theirs", "noise = theirs:noise", TRANSFORM, "edgeflock.transforms")
    changed = augment.parse("noise,flip")
    assert str(changed) == "flip,noise"
    x = torch.zeros(2, 3)  # no picture: nothing moves
    alone = augment.parse("noise")
    alone.check((3,))
    assert torch.equal(alone.of(x, np.random.default_rng(1)), alone.of(x, np.random.default_rng(1)))
    assert float(alone.of(x, np.random.default_rng(1)).sum()) > 0
    assert not x.any()
    with pytest.raises(BadData, match=r"the transform theirs:flat returns .* of shape \(3,\), needed is"):
        augment.parse(named("theirs:flat")).of(x, np.random.default_rng(1))
    with pytest.raises(BadValue, match=r"plug-ins after them \(noise\)"):
        augment.parse("nose")
    config = resolve(ServerConfig(augment="flip, theirs:noise,noise", method="fedavg"))
    assert references(config) == ("theirs:noise",)
    assert [str(code) for code in code_of(config)] == ["the transform theirs:noise", "the transform noise"]


def test_a_method_whose_parts_are_of_the_wrong_kind_is_refused_where_it_is_loaded(site: Path) -> None:
    (site / "theirs.py").write_text(METHOD.replace("server=ServerHalf", "server=ServerHalf()"))
    with pytest.raises(PluginError, match=r"importing theirs failed: TypeError: .*\(theirs.py:5\)"):
        methods.load(named("theirs:METHOD"))
    (site / "others.py").write_text(METHOD.replace("params=Params", "params=dict"))
    with pytest.raises(PluginError, match="params is <class 'dict'>, needed is a class derived"):
        methods.load(named("others:METHOD"))


TRANSFORM = """
def noise(x, random):
    return x + float(random.random())

def flat(x, random):
    return x[0]
"""


def test_the_digest_is_that_of_the_packages_source_files_by_their_paths(site: Path) -> None:
    """As docs/plug-ins.md defines it; nothing is imported for it."""
    package = site / "theirs"
    (package / "deep").mkdir(parents=True)
    files = {"__init__.py": b"", "deep/work.py": b"raise SystemExit\n", "method.py": b"METHOD = 1\n"}
    for name, content in files.items():
        (package / name).write_bytes(content)
    (package / "data.npz").write_bytes(b"no source")
    told = b"".join(
        name.encode() + b"\0" + sha256(content).digest() for name, content in sorted(files.items())
    )
    assert digest("theirs.method:METHOD") == digest("theirs.deep.work:other") == sha256(told).digest()
    (site / "single.py").write_bytes(b"x = 1")
    assert digest("single:x") == sha256(b"single.py\0" + sha256(b"x = 1").digest()).digest()
    (site / "space").mkdir()
    (site / "space" / "inner.py").write_bytes(b"x = 1")
    assert digest("space.inner:x") == sha256(b"inner.py\0" + sha256(b"x = 1").digest()).digest()
    assert digest("nowhere:x") == digest("sys:path") == b""
    assert not {"theirs", "theirs.method", "single"} & set(sys.modules)


def test_two_ends_say_in_a_sentence_what_code_they_have_otherwise(site: Path) -> None:
    install(site, "theirs", "better = theirs:METHOD", METHOD)
    (site / "mine.py").write_text("x = 1")
    asked = of_run([("methods", "better"), ("partitions", "mine:x"), ("models", "mlp")], "mine:x")
    assert [(code.kind, code.name) for code in asked] == [
        ("methods", "better"),
        ("partitions", "mine:x"),
        ("models", "custom"),
    ]
    assert list(differences(asked, of_device(["mine:x"], "mine:x"))) == []
    ours = asked[0].digest.hex()[:12]
    told = list(differences(asked, [Code("methods", "better", b"x" * 32), Code("models", "custom", b"")]))
    assert told == [
        f"the code of the method better is 787878787878 at the client, {ours} at the server",
        "the client names no code of the partition mine:x",
        "the code of the model custom cannot be compared: no source files at the client",
    ]


METHOD = """
from edgeflock.methods.kit.base import ClientHalf, Method, ServerHalf
from edgeflock.methods.kit.options import Params

METHOD = Method(name="better", summary="as FedAvg", params=Params, server=ServerHalf, client=ClientHalf)
"""
SCHEME = """import numpy as np
from edgeflock.common.command.ranges import unit
from edgeflock.common.partitions.kit.base import Number, Scheme

def split(pool, value):
    return np.array_split(np.arange(len(pool)), 2)

SCHEME = Scheme("halves", "two halves", split, Number("SHARE", False, unit()))
"""
ENTRY = """
import numpy as np
from edgeflock.common.datasets.kit.base import Dataset, Entry, part

def read(name, root):
    half = part(name, np.ones((4, 2), np.float32), np.arange(4) % 2, 2)
    return Dataset(name, 2, half, half)

ENTRY = Entry(read, shipped=True)
"""
