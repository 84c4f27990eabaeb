"""The tables of docs/protocol.md are those of the wire and of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgeflock.common.payload.choice import NAMES, SUITABLE
from edgeflock.common.payload.package import Kind
from edgeflock.common.wire import messages
from edgeflock.common.wire.transport import MAX_CHUNK, MAX_MESSAGE, MAX_STATUS, PROTOCOL
from edgeflock.server.service.refusals import TEMPORARY
from edgeflock.v1 import aggregator_pb2, bundle_pb2, control_pb2

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "protocol.md").read_text("utf-8")
REASONS = sorted(aggregator_pb2.Reason.keys())
PROTO = (ROOT / "proto" / "edgeflock" / "v1" / "aggregator.proto").read_text("utf-8")


def rows(prefix: str) -> dict[str, list[str]]:
    """Return the table rows whose first cell is a name with that prefix: name -> the other cells."""
    found = re.findall(rf"^\| `({prefix}\w+)` \|(.*)\|$", TEXT, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def test_every_reason_has_its_row_with_the_sentence_of_the_proto() -> None:
    sentences = dict(re.findall(r'^  (REASON_\w+) = \d+; +// "(.*?)"', PROTO, re.MULTILINE))
    documented = {name: cells[0] for name, cells in rows("REASON_").items()}
    assert documented == {"REASON_UNSPECIFIED": "", **sentences}
    assert sorted(documented) == REASONS


@pytest.mark.parametrize("name", [name for name in REASONS if name != "REASON_UNSPECIFIED"])
def test_the_document_says_which_refusals_are_temporary(name: str) -> None:
    temporary = name.removeprefix("REASON_").lower() in TEMPORARY
    assert rows("REASON_")[name][1] == ("temporary" if temporary else "final")


def test_every_codec_has_its_row() -> None:
    assert set(rows("CODEC_")) == set(bundle_pb2.Codec.keys())


def test_every_kind_has_its_row_with_the_codecs_that_it_may_have() -> None:
    documented = {name: cells[1] for name, cells in rows("BUNDLE_KIND_").items()}
    assert set(documented) == set(bundle_pb2.BundleKind.keys())
    for kind in Kind:
        allowed = SUITABLE.get(kind)
        assert documented[f"BUNDLE_KIND_{kind.name}"] == (", ".join(allowed) if allowed else "exact")
    assert set(SUITABLE[Kind.DELTA]) == set(NAMES)


@pytest.mark.parametrize("module", [aggregator_pb2, control_pb2], ids=["aggregator", "control"])
def test_every_call_is_named(module: object) -> None:
    services = module.DESCRIPTOR.services_by_name  # type: ignore[attr-defined]
    calls = [method.name for service in services.values() for method in service.methods]
    assert [name for name in calls if f"`{name}`" not in TEXT] == []


def test_the_limits_are_those_of_the_code() -> None:
    mebi = 1 << 20
    expected = {
        "one message": f"{MAX_MESSAGE // mebi} MiB",
        "one answer to the operator": f"{MAX_STATUS // mebi} MiB",
        "data of a chunk": f"{MAX_CHUNK // mebi} MiB",
        "sections of a package": str(messages.MAX_SECTIONS),
        "scalars of a package; characters of a name": f"{messages.MAX_SCALARS}; {messages.MAX_SCALAR_NAME}",
        "tensors of a layout; characters of a name; dimensions": (
            f"{messages.MAX_TENSORS}; {messages.MAX_TENSOR_NAME}; {messages.MAX_DIMENSIONS}"
        ),
        "numbers of a bundle": f"2^{messages.MAX_ELEMENTS.bit_length() - 1}",
    }
    assert {what: limit for what, limit in expected.items() if f"| {what} | {limit} |" not in TEXT} == {}
    assert f"`JoinRequest.protocol` is {PROTOCOL};" in TEXT
