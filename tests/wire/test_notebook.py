"""The notebook of examples/ runs from its first cell to its last, in a kernel as Jupyter has them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # those of Jupyter
def test_every_cell_runs_and_shows_what_it_should(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="edgeflock[dev] is not installed")
    nbformat = pytest.importorskip("nbformat", reason="edgeflock[dev] is not installed")
    pytest.importorskip("ipykernel", reason="edgeflock[dev] is not installed")
    pytest.importorskip("pandas", reason="edgeflock[pandas] is not installed")
    shutil.copy(NOTEBOOK, tmp_path)
    notebook = nbformat.read(tmp_path / NOTEBOOK.name, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3", resources=resources).execute()
    shown = {cell.source: said(cell) for cell in notebook.cells if cell.cell_type == "code"}
    (progress,) = [text for source, text in shown.items() if "rounds=10)" in source and "import" in source]
    assert "round 10/10  accuracy 0." in progress
    assert "<svg" in shown["run.plot()"]
    assert all("<table" in text for source, text in shown.items() if source.startswith("run.evaluations"))
    (share,) = [text for source, text in shown.items() if source.startswith("import torch")]
    (found,) = [text for source, text in shown.items() if source == "run"]
    assert f"accuracy {float(share):.4f}>" in found
    assert len([*(tmp_path / "runs").iterdir()]) == 4


def said(cell: Any) -> str:
    """Return all that a cell has shown."""
    texts = [out.get("text", "") for out in cell.outputs]
    data = [value for out in cell.outputs for value in out.get("data", {}).values()]
    return "".join(map(str, [*texts, *(data[:1] if not any("<" in str(one) for one in data) else data)]))
