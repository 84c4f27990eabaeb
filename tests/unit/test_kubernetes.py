"""The Kubernetes example says no flag that its commands do not know."""

from __future__ import annotations

import re
from pathlib import Path

from edgeflock.common.command.options import public
from edgeflock.server.config import ServerConfig
from edgeflock.server.gate.config import GateConfig

MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "edgeflock.yaml"


def test_the_flags_of_the_kubernetes_example_are_known() -> None:
    for command, config in (("fl-server", ServerConfig), ("fl-gate", GateConfig)):
        container = MANIFEST.read_text("utf-8").partition(f"command: [{command}]")[2].partition("ports:")[0]
        said = re.findall(r"- (--[a-z-]+)=", container)
        assert said
        assert set(said) <= {entry.flag for entry in public(config)}
