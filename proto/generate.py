"""Generates the committed Python stubs from the .proto files, or checks that they are up to date.

generate.py            writes common/edgeflock/v1/*_pb2*
generate.py --check    compares byte for byte and names every file that differs; exit code 1 if any does
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROTO = Path(__file__).resolve().parent
OUTPUT_ROOT = PROTO.parent / "common"
PLUGINS = ("--python_out={}", "--grpc_python_out={}", "--mypy_out=quiet:{}", "--mypy_grpc_out=quiet:{}")


def generate(into: Path) -> None:
    """Write all stubs below that output root, in the folders of their protobuf packages."""
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    outputs = [plugin.format(into) for plugin in PLUGINS]
    # protoc looks for its mypy plugins on PATH; they lie beside the interpreter, activated or not.
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTO), *outputs, *sources]
    subprocess.run(command, check=True, env=environment)


def stubs(root: Path) -> dict[str, bytes]:
    """Return the generated files below an output root: relative path -> content."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("edgeflock/*/*_pb2*.py*")}


def differences(committed: dict[str, bytes], fresh: dict[str, bytes]) -> list[str]:
    """Return one line for every file that is missing, left over or different."""
    lines = [f"missing: {name}" for name in sorted(fresh.keys() - committed.keys())]
    lines += [f"no .proto makes this: {name}" for name in sorted(committed.keys() - fresh.keys())]
    both = sorted(fresh.keys() & committed.keys())
    return lines + [f"differs: {name}" for name in both if fresh[name] != committed[name]]


def check(root: Path) -> list[str]:
    """Return how the stubs below that root differ from freshly generated ones."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        return differences(stubs(root), stubs(Path(folder)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the Python stubs, or check the committed ones.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a stub differs")
    parser.add_argument("--root", type=Path, default=OUTPUT_ROOT, help="output root (default: common/)")
    arguments = parser.parse_args()
    if not arguments.check:
        generate(arguments.root)
        return 0
    lines = check(arguments.root)
    for line in lines:
        print(line)
    print("stubs differ: run `make stubs` and commit" if lines else "stubs are what the .proto files say")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
