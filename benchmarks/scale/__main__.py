"""`python -m benchmarks.scale`: fleets of growing size as tables, in JSON and in docs/performance.md."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, Failed
from benchmarks.scale import page
from benchmarks.scale.asked import Asked, Family, Found, Held, Row, Skipped

FAMILIES = ("hosted", "online", "herd", "idle", "start-up", "compare-ray", "gates", "beside")
QUICK = (100, 300)


def main() -> int:
    given = _arguments()
    results: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    failures = [] if given.tell else _measure(given, results)
    if given.docs and not failures:
        page.write(given.docs, results)
    asked = {name: results[name] for name in given.names or results if name in results}
    print(page.markdown(asked), *failures, f"from {given.json}", sep="\n")
    return 1 if failures else 0


def _measure(given: argparse.Namespace, results: dict[str, Any]) -> list[str]:
    """Take one family after the other; what is there of it is kept whatever comes of the next."""
    asked, failures = _asked(given), list[str]()
    for name in given.names or FAMILIES:
        found, begun = list[Found](), _machine()
        family: Family = importlib.import_module(f"benchmarks.scale.{name.replace('-', '_')}").FAMILY
        print(f"{name}: {family.title} ...", flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="scale-", dir=given.scratch) as folder:
                for one in family.measure(asked, Path(folder)):
                    print(f"  {_told(one)}", flush=True)
                    found.append(one)
        except Failed as error:
            failures.append(f"{name} could not be measured: {error}")
        if found:
            results[name] = _stored(family, found, begun)
            given.json.parent.mkdir(parents=True, exist_ok=True)
            given.json.write_text(json.dumps(results, indent=2) + "\n")
    return failures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"tables; all if none is given: {', '.join(FAMILIES)}")
    parser.add_argument("--clients", help="sizes of the fleet, such as 100,1000 (default: to 10,000)")
    parser.add_argument("--quick", action="store_true", help="small fleets and few rounds: a minute or two")
    parser.add_argument("--repeats", type=int, default=3, help="of what takes turns (default: 3)")
    parser.add_argument("--limit-s", type=float, default=900.0, help="of one run (default: 900)")
    parser.add_argument("--before", default="", help="folder with the commands of an earlier version")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter that has flower or pfl_research (default: build/beside/NAME/bin/python)",
    )
    parser.add_argument("--tell", action="store_true", help="measure nothing: write what the JSON holds")
    parser.add_argument("--scratch", type=Path, help="where runs lie while they last (default: TMPDIR)")
    default = ROOT / "build" / "scale.json"
    parser.add_argument("--json", type=Path, default=default, help="where results go (default: build/)")
    parser.add_argument(
        "--docs", type=Path, help="page whose tables are renewed from all that the JSON holds"
    )
    given = parser.parse_args()
    if unknown := set(given.names) - set(FAMILIES):
        parser.error(f"no table is called {min(unknown)!r}; there are: {', '.join(FAMILIES)}")
    return given


def _asked(given: argparse.Namespace) -> Asked:
    sizes = Asked.clients
    if given.quick:
        sizes = QUICK
    if given.clients:
        sizes = tuple(int(text) for text in given.clients.split(","))
    python = dict(text.split("=", 1) for text in given.python)
    return Asked(sizes, given.quick, given.limit_s, 1 if given.quick else given.repeats, given.before, python)


def _told(found: Found) -> str:
    match found:
        case Row(cells=cells):
            return "  ".join(map(page.figure, cells))
        case Held(name=name, measured=measured, target=target, held=held):
            return f"{name}: {page.figure(measured)} ({target}): {'held' if held else 'NOT held'}"
        case Skipped(sentence=sentence):
            return sentence


def _stored(family: Family, found: Sequence[Found], begun: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": family.title,
        "about": family.about,
        "columns": family.columns,
        "rows": [family.checked(one).cells for one in found if isinstance(one, Row)],
        "held": [vars(one) for one in found if isinstance(one, Held)],
        "skipped": [one.sentence for one in found if isinstance(one, Skipped)],
        "machine": {**begun, "load": [begun["load"], os.getloadavg()[0]]},
    }


def _machine() -> dict[str, Any]:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "commit": commit or "unknown",
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
