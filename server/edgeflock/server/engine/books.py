"""The one line that says everything of a round."""

from __future__ import annotations

from collections.abc import Mapping

from edgeflock.server.core.decisions import Verdict
from edgeflock.server.core.effects import CommitRound
from edgeflock.server.core.run import RunMachine
from edgeflock.server.costs.rows import Row
from edgeflock.server.costs.time_line import OF_A_ROUND


def canonical_line(
    machine: RunMachine,
    effect: CommitRound,
    metrics: Mapping[str, float],
    line: Mapping[str, float],
    rows: Mapping[int, Row],
) -> dict[str, object]:
    """The one line that says everything of a round."""
    missed = [item for item in effect.outcomes if item.verdict is not Verdict.COUNTED]
    seconds = sum(value for name, value in line.items() if name in OF_A_ROUND)
    return {
        "round": effect.round,
        "counted": len(effect.outcomes) - len(missed),
        "not_counted": {machine.roster.names[item.seat]: str(item.verdict) for item in missed},
        **{name: value for name, value in metrics.items() if not name.startswith("server_")},
        **{name: round(value, 6) for name, value in line.items()},
        "seconds": round(seconds, 6),
        "bytes_down": sum(int(row["bytes_down"] or 0) for row in rows.values()),
        "bytes_up": sum(int(row["bytes_up"] or 0) for row in rows.values()),
        "flops": sum(row.get("flops") or 0 for row in rows.values()),
    }
