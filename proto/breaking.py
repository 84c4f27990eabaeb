"""Compares the wire with the last one that was kept: a neighbour of the version before must understand it.

breaking.py            says what an end of the version before would not understand; exit code 1 if it does
breaking.py --keep     keeps this wire as the one to compare with, if it breaks nothing
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

PROTO = Path(__file__).resolve().parent
KEPT = PROTO.parent / "tests" / "data" / "wire"
# WIRE lets types change that are written alike; to a reader of this code they mean another thing.
RULES = ["WIRE", "FIELD_SAME_TYPE", "FIELD_SAME_NAME", "ENUM_VALUE_SAME_NAME", "RPC_NO_DELETE"]


def broken(proto: Path, kept: Path) -> list[str]:
    """Return a line for everything in which that wire breaks the one that is kept."""
    config = json.dumps({"version": "v2", "breaking": {"use": RULES}})
    command = [_buf(), "breaking", ".", "--against", str(kept), "--config", config]
    run = subprocess.run(command, cwd=proto, capture_output=True, text=True, check=False)
    if run.returncode and not run.stdout:
        raise RuntimeError(run.stderr)
    return run.stdout.splitlines()


def _buf() -> str:
    """It lies beside the interpreter, activated or not."""
    return str(Path(sys.executable).parent / "buf")


def keep(proto: Path, kept: Path) -> None:
    """Let that wire be the one to compare with."""
    shutil.rmtree(kept, ignore_errors=True)
    for path in proto.rglob("*.proto"):
        place = kept / path.relative_to(proto)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the wire with the last one that was kept.")
    parser.add_argument("--keep", action="store_true", help="keep this one, if it breaks nothing")
    parser.add_argument("--proto", type=Path, default=PROTO, help="the wire (default: proto/)")
    arguments = parser.parse_args()
    lines = broken(arguments.proto, KEPT)
    for line in lines:
        print(line)
    if lines:
        print("an end of the version before would not understand this wire: add fields, reserve what goes")
        return 1
    if arguments.keep:
        keep(arguments.proto, KEPT)
    print("an end of the version before understands this wire")
    return 0


if __name__ == "__main__":
    sys.exit(main())
