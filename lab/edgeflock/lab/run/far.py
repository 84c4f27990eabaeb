"""A run whose clients are on the machines of a cluster: where what they keep lies, and what nodes need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.lab.cluster.errand import group_of
from edgeflock.lab.cluster.hosts import Hosts
from edgeflock.lab.cluster.joining import Cluster
from edgeflock.lab.run.config import LabConfig
from edgeflock.server.config import ServerConfig
from edgeflock.server.console.display import Display
from edgeflock.server.files.run_dir import RUN_TOML
from edgeflock.server.files.run_toml import from_toml


@dataclass(frozen=True)
class Far:
    """Other machines, as they were asked for."""

    cluster: Cluster
    state_root: Path | None  # a folder that all of them see

    def hosts(self, run_dir: Path, given: Mapping[str, Any], lab: LabConfig, shown: Display) -> Hosts:
        """Look at every node, and return them as hosts of a run's clients. Raises UsageError."""
        begun = run_dir / RUN_TOML
        usual = from_toml(begun) if begun.exists() else ServerConfig()
        dataset = given.get("dataset", usual.dataset)
        made = Hosts(
            self.cluster,
            group_of(run_dir),
            self.state_root,
            lambda words: shown.say([(words, "")], indent=2),
            bool(given.get("insecure", usual.insecure)),
        )
        needs = dataset and lab.client_data is None
        made.require([(dataset, given.get("data_root", usual.data_root))] if needs else [])
        return made
