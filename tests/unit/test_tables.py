"""Tables as own data: which columns are what, folders of them, and every mistake with its line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.common.command import extras
from edgeflock.common.datasets.kit import own
from edgeflock.common.datasets.kit.base import Array, Scaling
from edgeflock.common.datasets.kit.own import Reading, fits, load_own
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.tasks.classification import TASK

LOG = "temp,hum,state\n1.5,2,0\n2,3,1\n"


def taken(path: Path, reading: Reading) -> None:
    """Read all that there is, as a run of many classes does."""
    found = load_own(path, reading=reading).train
    fits(found, found.input_shape, TASK(2**31), Scaling())


BY_STATE = Reading(label=("state",))


def read(path: Path, reading: Reading = BY_STATE) -> tuple[Array, Array]:
    found = load_own(path, reading=reading).train
    return found.take(np.arange(len(found)))


@pytest.mark.parametrize(
    ("text", "reading", "x", "y"),
    [
        (LOG, BY_STATE, [[1.5, 2], [2, 3]], [0, 1]),
        (LOG, Reading(label=("state",), columns=("hum", "temp")), [[2, 1.5], [3, 2]], [0, 1]),
        (LOG, Reading(label=("hum", "temp")), [[0], [1]], [[2, 1.5], [3, 2]]),
        (LOG, Reading(), [[1.5, 2, 0], [2, 3, 1]], [[], []]),
        (LOG.replace(",", ";"), BY_STATE, [[1.5, 2], [2, 3]], [0, 1]),
        (LOG.replace(",", "\t"), BY_STATE, [[1.5, 2], [2, 3]], [0, 1]),
        ("\ufeff" + LOG.replace("\n", "\r\n"), BY_STATE, [[1.5, 2], [2, 3]], [0, 1]),
        ("1,2,5\n3,4,6\n", Reading(label=("2",)), [[1, 2], [3, 4]], [5, 6]),
        (LOG.replace("0\n", "0.5\n"), BY_STATE, [[1.5, 2], [2, 3]], [0.5, 1]),
        ('"te,mp",state\n"1.5",2\n', BY_STATE, [[1.5]], [2]),
        (LOG + "\n4,5,2", BY_STATE, [[1.5, 2], [2, 3], [4, 5]], [0, 1, 2]),
        (LOG + "4,5,2", Reading(label=("state",), growing=True), [[1.5, 2], [2, 3]], [0, 1]),
    ],
)
def test_columns_are_samples_and_labels(
    tmp_path: Path, text: str, reading: Reading, x: list[Any], y: list[Any]
) -> None:
    (tmp_path / "log.csv").write_bytes(text.encode())
    found = read(tmp_path / "log.csv", reading)
    assert found[0].dtype == np.float32
    assert [half.tolist() for half in found] == [x, y]


def test_labels_that_are_words_are_numbered_by_a_list_of_all(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("temp,state\n3,walking\n4,sitting\n")
    with pytest.raises(
        EdgeflockError,
        match=r"line 2: column 'state' is 'walking': labels that are words need .*classes\.txt",
    ):
        read(tmp_path / "log.csv")
    (tmp_path / "classes.txt").write_text("sitting\n\nwalking\n")
    assert read(tmp_path / "log.csv")[1].tolist() == [1, 0]
    (tmp_path / "log.csv").write_text("temp,state\n3,walking\n4,siting\n")
    with pytest.raises(EdgeflockError, match="line 3: column 'state' 'siting': did you mean 'sitting'"):
        read(tmp_path / "log.csv")


def test_a_folder_of_tables_is_one_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for day in (10, 2, 1):
        (tmp_path / f"day{day}.csv").write_text(f"temp,state\n{day},0\n")
    assert read(tmp_path)[0].ravel().tolist() == [1, 2, 10]
    (tmp_path / "day3.csv").write_text("state,temp\n3,0\n")
    (tmp_path / "day4.csv").write_text("state,hum\n3,0\n")
    with pytest.raises(EdgeflockError, match=r"day4\.csv has the columns hum, state, .* has temp, state"):
        read(tmp_path)


def test_a_folder_may_bring_its_test_part(tmp_path: Path) -> None:
    for half, rows in (("train", 3), ("test", 1)):
        (tmp_path / half).mkdir()
        (tmp_path / half / "log.csv").write_text("temp,state\n" + "1,0\n" * rows)
    found = load_own(tmp_path, reading=BY_STATE)
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (3, 1)


@pytest.mark.parametrize(
    ("more", "reading", "sentence"),
    [
        ("3,abc,1\n", BY_STATE, "log.csv, line 4: column 'hum' is 'abc', needed is a finite number"),
        ("3,,1\n", BY_STATE, "line 4: column 'hum' is empty, needed is a finite number"),
        ("3,nan,1\n", BY_STATE, "line 4: column 'hum' is 'nan', needed"),
        ("3,1e300,1\n", BY_STATE, "line 4: column 'hum' is '1e300', needed"),
        ("3,1\n", BY_STATE, "line 4, has 2 values, there are 3 columns: temp, hum, state"),
        ("3,1,4,5\n", BY_STATE, "line 4, has 4 values, there are 3 columns"),
        ("3,1,-1\n", BY_STATE, "y has the label -1, allowed are 0 and above"),
        ("3,1,0.5\n", BY_STATE, "y is float32 of shape 3, needed is one whole number per sample"),
        ("", Reading(label=("stat",)), "unknown column of"),
        ("", Reading(label=("stat",)), "'stat': did you mean 'state'? known are hum, state, temp"),
        (
            "",
            Reading(),
            "log.csv: there are no labels (--label names their column), needed is one whole number",
        ),
    ],
)
def test_every_mistake_in_a_table_is_a_sentence(
    tmp_path: Path, more: str, reading: Reading, sentence: str
) -> None:
    (tmp_path / "log.csv").write_text(LOG + more)
    with pytest.raises(EdgeflockError) as refusal:
        taken(tmp_path / "log.csv", reading)
    assert sentence in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty, needed is a table"),
        (b"a,state\n", "x has no samples"),
        (b"a,a\n1,2\n", "has two columns called 'a'"),
        (b"state\n1\n", "has no column beside the label"),
        (b"a,state\n\xff\xfe,1\n", "is no text in UTF-8"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(EdgeflockError, match=sentence):
        read(tmp_path / "log.csv")


def test_columns_of_what_is_no_table_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.ones((2, 3)), y=np.arange(2))
    with pytest.raises(EdgeflockError, match=r"--label is for tables, \.csv and \.parquet"):
        read(tmp_path / "own.npz")


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

    def written(**columns: Any) -> Path:
        parquet.write_table(pyarrow.table(columns), tmp_path / "log.parquet")
        return tmp_path / "log.parquet"

    x, y = read(written(temp=[1.5, 2], wet=[True, False], state=[0, 1]))
    assert (x.tolist(), y.tolist()) == ([[1.5, 1], [2, 0]], [0, 1])
    assert (x.dtype, y.dtype) == (np.dtype(np.float32), np.dtype(np.int64))
    for columns, sentence in (
        ({"temp": [1.0, None]}, "column 'temp' is empty in row 1, needed is a number"),
        ({"temp": ["a", "b"]}, "column 'temp' holds string, needed are numbers"),
        ({"temp": [1.0, float("nan")]}, "column 'temp' is nan in row 1, needed is a finite number"),
    ):
        with pytest.raises(EdgeflockError, match=sentence):
            read(written(**columns, state=[0, 1]))
    (tmp_path / "log.parquet").write_text("no")
    with pytest.raises(EdgeflockError, match=r"log\.parquet is not a Parquet file"):
        read(tmp_path / "log.parquet")


def test_parquet_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    (tmp_path / "log.parquet").touch()
    with pytest.raises(EdgeflockError, match="file needs pyarrow, which is not installed") as refusal:
        own.load_own(tmp_path / "log.parquet")
    assert refusal.value.exit_code == 2
