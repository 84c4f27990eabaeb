"""Says which locked packages have known holes, and which nobody could be asked about: audit.py LOCK..."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

TOOL = ["uv", "tool", "run", "--quiet", "pip-audit==2.10.1", "--disable-pip", "--require-hashes"]


def packages(lock: str) -> list[dict[str, Any]]:
    """What pip-audit says of every package of a lock."""
    command = [*TOOL, "--progress-spinner", "off", "--format", "json", "--requirement", lock]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(f"audit: {lock}: {(done.stderr.split(chr(10)) or ['pip-audit said nothing'])[-1]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    return found


def main(locks: list[str]) -> int:
    told = [package for lock in locks for package in packages(lock)]
    holes = [(package, hole) for package in told for hole in package.get("vulns", [])]
    for package, hole in holes:
        mended = ", ".join(hole["fix_versions"]) or "no version"
        print(f"{package['name']} {package['version']}: {hole['id']}, mended in {mended}")
    unknown = [package["name"] for package in told if "skip_reason" in package]
    print(f"audit: {len(told) - len(unknown)} of {len(told)} packages looked up, {len(holes)} known holes")
    if unknown:
        print(f"audit: could not be looked up, so nothing is known of them: {', '.join(unknown)}")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
