"""Between messages and values: the one file here that knows both; what comes in is checked whole first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from itertools import islice

from edgeflock.common.errors import MalformedMessage
from edgeflock.common.payload.choice import for_kind
from edgeflock.common.payload.codecs import coding
from edgeflock.common.payload.constant import Constant
from edgeflock.common.payload.layout import (
    DIGEST_BYTES,
    NO_BUFFERS,
    NO_COUNTERS,
    Layout,
    ModelLayouts,
    TensorSpec,
)
from edgeflock.common.payload.package import CodecChoice, Kind, Package, Scope, Section
from edgeflock.common.plugins.digest import Code
from edgeflock.common.reason import Reason
from edgeflock.common.run import DataDescription, ModelDescription, RunDescription
from edgeflock.common.scores import ClientScore
from edgeflock.common.tuning.tuning import NOTHING, Tuning
from edgeflock.common.verdict import Verdict
from edgeflock.common.wire.transport import CHUNK, MAX_CHUNK, PROTOCOL, SMALL_CHUNK
from edgeflock.v1 import aggregator_pb2, bundle_pb2

__all__ = [
    "CHUNK",
    "MAX_CHUNK",
    "PROTOCOL",
    "SMALL_CHUNK",
    "choice_from_wire",
    "choice_to_wire",
    "kind_from_wire",
    "kind_to_wire",
    "layout_from_wire",
    "layout_to_wire",
    "package_from_wire",
    "package_to_wire",
    "run_from_wire",
    "run_to_wire",
    "scope_from_wire",
    "score_from_wire",
    "score_to_wire",
    "task_from_wire",
    "task_to_wire",
    "verdict_from_wire",
    "verdict_to_wire",
]

MAX_SECTIONS = 16
MAX_SCALARS = 64
MAX_SCALAR_NAME = 64  # characters
MAX_TENSORS = 100_000
MAX_TENSOR_NAME = 256  # characters
MAX_DIMENSIONS = 8
MAX_CODE = 256  # plug-ins of one end that are taken note of
_NAME, _CODE_DIGEST = 256, 32  # characters, bytes
MAX_SUMS, MAX_SUMMED = 64, 1 << 13  # of a score, and numbers in them
MAX_ELEMENTS = 1 << 40  # of one bundle: 4 TiB of float32

KINDS = {kind: bundle_pb2.BundleKind.Value(f"BUNDLE_KIND_{kind.name}") for kind in Kind}
KINDS_BACK = {value: kind for kind, value in KINDS.items()}
CODECS = {name: bundle_pb2.Codec.Value(f"CODEC_{name.upper()}") for name in coding.CODECS}
CODECS_BACK = {value: name for name, value in CODECS.items()}
DTYPES = {"float32": bundle_pb2.DTYPE_FLOAT32, "int64": bundle_pb2.DTYPE_INT64}
DTYPES_BACK = {value: name for name, value in DTYPES.items()}
SCOPES = {scope: aggregator_pb2.Scope.Value(f"SCOPE_{scope.name}") for scope in Scope}
SCOPES_BACK = {value: scope for scope, value in SCOPES.items()}
REASONS = {reason: aggregator_pb2.Reason.Value(f"REASON_{reason.name}") for reason in Reason}
REASONS_BACK = {value: reason for reason, value in REASONS.items()}
VERDICTS: dict[Verdict, aggregator_pb2.Reason.ValueType] = {
    verdict: REASONS[Reason(verdict)] for verdict in Verdict if verdict is not Verdict.COUNTED
}
VERDICTS_BACK = {value: verdict for verdict, value in VERDICTS.items()}
INTEGERS = (Kind.COUNTERS, Kind.COUNTS, Kind.NOTES)  # kinds that may be int64

if set(REASONS_BACK) != set(aggregator_pb2.Reason.values()) - {aggregator_pb2.REASON_UNSPECIFIED}:
    raise RuntimeError("reason.Reason and the wire's Reason differ")
if set(KINDS_BACK) != set(bundle_pb2.BundleKind.values()) - {bundle_pb2.BUNDLE_KIND_UNSPECIFIED}:
    raise RuntimeError("package.Kind and the wire's BundleKind differ")


# -------------------------------------------------------------------------------- kinds, codecs


def kind_to_wire(kind: Kind) -> bundle_pb2.BundleKind.ValueType:
    return KINDS[kind]


def kind_from_wire(value: int) -> Kind:
    if value not in KINDS_BACK:
        raise MalformedMessage(f"bundle kind {value} is unknown")
    return KINDS_BACK[bundle_pb2.BundleKind.ValueType(value)]


def choice_to_wire(choice: CodecChoice) -> bundle_pb2.CodecSpec:
    return bundle_pb2.CodecSpec(codec=CODECS[choice.name], zstd=choice.zstd, fraction=choice.fraction)


def choice_from_wire(message: bundle_pb2.CodecSpec) -> CodecChoice:
    if message.codec not in CODECS_BACK:
        raise MalformedMessage(f"codec {message.codec} is unknown")
    name, fraction = CODECS_BACK[message.codec], message.fraction
    if not (0 < fraction <= 1 if name == "topk" else fraction == 0):
        raise MalformedMessage(
            f"codec {name} has fraction {fraction}, allowed is (0, 1] for topk, 0 otherwise"
        )
    return CodecChoice(name, message.zstd, fraction if name == "topk" else 0.0)


def scope_from_wire(value: int) -> Scope:
    if value not in SCOPES_BACK:
        raise MalformedMessage(f"scope {value} is unknown")
    return SCOPES_BACK[aggregator_pb2.Scope.ValueType(value)]


# -------------------------------------------------------------------------------- layouts


def layout_to_wire(layout: Layout, *, whole: bool = True) -> bundle_pb2.Layout:
    """Return a layout as a message; by its digest alone if it is not to be `whole`."""
    tensors = layout.tensors if whole else ()
    specs = (bundle_pb2.TensorSpec(name=spec.name, shape=spec.shape) for spec in tensors)
    return bundle_pb2.Layout(dtype=DTYPES[layout.dtype], tensors=specs, digest=layout.digest)


def layout_from_wire(message: bundle_pb2.Layout) -> Layout:
    """Return the layout that the message describes, or raise MalformedMessage."""
    if message.dtype not in DTYPES_BACK:
        raise MalformedMessage(f"dtype {message.dtype} is unknown")
    _at_most("layout", "tensors", len(message.tensors), MAX_TENSORS)
    layout = Layout(tuple(map(_tensor_from_wire, message.tensors)), DTYPES_BACK[message.dtype])
    _no_repeats("tensor", [spec.name for spec in layout.tensors])
    _at_most("layout", "numbers", layout.elements, MAX_ELEMENTS)
    if not layout.tensors and len(message.digest) == DIGEST_BYTES:
        return Layout.known_by(message.digest, layout.dtype)
    _same_digest("layout", message.digest, layout.digest)
    return layout


def _tensor_from_wire(message: bundle_pb2.TensorSpec) -> TensorSpec:
    _check_name("tensor", message.name, MAX_TENSOR_NAME)
    _at_most(f"tensor {message.name!r}", "dimensions", len(message.shape), MAX_DIMENSIONS)
    shape = tuple(message.shape)
    # a dimension of 0 must not hide the size of the others
    _at_most(f"tensor {message.name!r}", "numbers", math.prod(max(1, side) for side in shape), MAX_ELEMENTS)
    return TensorSpec(message.name, shape)


# -------------------------------------------------------------------------------- packages


def package_to_wire(package: Package) -> bundle_pb2.Package:
    return bundle_pb2.Package(
        sections=map(_section_to_wire, package.sections),
        scalars=package.scalars,
        size_bytes=package.size_bytes,
        crc32c=package.crc32c,
        digest=package.digest,
    )


def package_from_wire(message: bundle_pb2.Package) -> Package:
    """Return the package that the message describes, or raise MalformedMessage.

    What comes out agrees with itself; whether its layouts and codecs are those of a task is not known here.
    """
    _at_most("package", "sections", len(message.sections), MAX_SECTIONS)
    _at_most("package", "scalars", len(message.scalars), MAX_SCALARS)
    for name in message.scalars:
        _check_name("scalar", name, MAX_SCALAR_NAME)
    sections = tuple(map(_section_from_wire, message.sections))
    _no_repeats("section", [str(section.kind) for section in sections])
    package = Package(sections, dict(message.scalars), message.crc32c)
    if message.size_bytes != package.size_bytes:
        raise MalformedMessage(
            f"package of {message.size_bytes} bytes has {package.size_bytes} in its sections"
        )
    _same_digest("package", message.digest, package.digest)
    return package


def _section_to_wire(section: Section) -> bundle_pb2.Section:
    return bundle_pb2.Section(
        kind=KINDS[section.kind],
        layout_digest=section.layout_digest,
        codec=choice_to_wire(section.codec),
        elements=section.elements,
        size_bytes=section.size_bytes,
    )


def _section_from_wire(message: bundle_pb2.Section) -> Section:
    kind, choice = kind_from_wire(message.kind), choice_from_wire(message.codec)
    if for_kind(choice, kind) != choice:
        raise MalformedMessage(f"codec {choice} is not for bundles of kind {kind}")
    if len(message.layout_digest) != DIGEST_BYTES:
        raise MalformedMessage(
            f"layout digest of {kind} has {len(message.layout_digest)} bytes, not {DIGEST_BYTES}"
        )
    _at_most(f"section {kind}", "numbers", message.elements, MAX_ELEMENTS)
    largest = coding.largest(choice, message.elements, "int64" if kind in INTEGERS else "float32")
    _at_most(f"section {kind}", "bytes", message.size_bytes, largest)
    return Section(kind, message.layout_digest, choice, message.elements, message.size_bytes)


# -------------------------------------------------------------------------------- runs


_AS_IT_IS = "none"  # an augmentation that is not said


def augment_to_wire(augment: str) -> str:
    return "" if augment == _AS_IT_IS else augment


def augment_from_wire(text: str) -> str:
    return text or _AS_IT_IS


def code_to_wire(code: Iterable[Code]) -> list[aggregator_pb2.Code]:
    return [aggregator_pb2.Code(**vars(one)) for one in code]


def code_from_wire(messages: Iterable[aggregator_pb2.Code]) -> tuple[Code, ...]:
    """Return what an end says of its foreign code, as far as that is taken note of."""
    kept = (one for one in islice(messages, MAX_CODE) if len(one.digest) <= _CODE_DIGEST)
    return tuple(Code(one.kind[:_NAME], one.name[:_NAME], one.digest) for one in kept)


def tuning_to_wire(tuning: Tuning) -> aggregator_pb2.Tuning | None:
    return None if tuning == NOTHING else aggregator_pb2.Tuning(**vars(tuning))


def tuning_from_wire(message: aggregator_pb2.Tuning) -> Tuning:
    return Tuning(**{field.name: getattr(message, field.name) for field in fields(Tuning)})


_USUAL = "classification"  # a task that is not said


def task_to_wire(task: str) -> str:
    return "" if task == _USUAL else task


def task_from_wire(text: str) -> str:
    return text or _USUAL


def score_to_wire(score: ClientScore) -> aggregator_pb2.ClientScore:
    sums = [aggregator_pb2.MetricSum(name=name, values=values) for name, values in score.sums.items()]
    return aggregator_pb2.ClientScore(
        model=score.model, samples=score.samples, hits=score.hits, loss=score.loss, sums=sums
    )


def score_from_wire(message: aggregator_pb2.ClientScore) -> ClientScore:
    """Return what a client says of a model; whether the task has such sums is not known here."""
    _at_most("score", "sums", len(message.sums), MAX_SUMS)
    _at_most("score", "numbers", sum(len(one.values) for one in message.sums), MAX_SUMMED)
    _no_repeats("sum", [one.name for one in message.sums])
    for one in message.sums:
        _check_name("sum", one.name, MAX_SCALAR_NAME)
    sums = {one.name: tuple(one.values) for one in message.sums}
    return ClientScore(message.model, message.samples, message.hits, message.loss, sums)


def run_to_wire(run: RunDescription, *, whole: bool = True) -> aggregator_pb2.Run:
    """Return what every client is told of a run; its layouts by their digests if it is not to be `whole`."""
    model, layouts = run.model, run.layouts
    spec = aggregator_pb2.ModelSpec(
        name=model.name,
        arguments=model.arguments,
        input_shape=model.input_shape,
        classes=model.classes,
        parameters=layout_to_wire(layouts.parameters, whole=whole),
        buffers=layout_to_wire(layouts.buffers, whole=whole),
        counters=layout_to_wire(layouts.counters, whole=whole),
        constants=[aggregator_pb2.Constant(**vars(constant)) for constant in run.constants],
        base=layout_to_wire(layouts.base, whole=whole) if run.base_digest else None,
        base_digest=run.base_digest,
        task=task_to_wire(model.task),
    )
    return aggregator_pb2.Run(
        run_id=run.run_id,
        epoch=run.epoch,
        seed=run.seed,
        method=run.method,
        options=run.options,
        model=spec,
        data=aggregator_pb2.DataSpec(**vars(run.data)) if run.data else None,
        clients=run.clients,
        augment=augment_to_wire(run.augment),
        tuning=tuning_to_wire(run.tuning),
        code=code_to_wire(run.code),
    )


def run_from_wire(message: aggregator_pb2.Run) -> RunDescription:
    """Return the run that the message describes, or raise MalformedMessage."""
    spec, data = message.model, message.data
    _at_most("model", "constants", len(spec.constants), MAX_TENSORS)
    model = ModelDescription(
        spec.name,
        tuple(spec.input_shape),
        spec.classes,
        dict(spec.arguments),
        task_from_wire(spec.task),
    )
    layouts = ModelLayouts(
        layout_from_wire(spec.parameters),
        layout_from_wire(spec.buffers) if spec.HasField("buffers") else NO_BUFFERS,
        layout_from_wire(spec.counters) if spec.HasField("counters") else NO_COUNTERS,
        layout_from_wire(spec.base) if spec.HasField("base") else NO_BUFFERS,
    )
    return RunDescription(
        message.run_id,
        message.epoch,
        message.seed,
        message.method,
        dict(message.options),
        model,
        layouts,
        DataDescription(**{field.name: getattr(data, field.name) for field in fields(DataDescription)})
        if message.HasField("data")
        else None,
        message.clients,
        tuple(map(_constant_from_wire, spec.constants)),
        augment_from_wire(message.augment),
        tuning=tuning_from_wire(message.tuning),
        code=code_from_wire(message.code),
        base_digest=spec.base_digest,
    )


def _constant_from_wire(message: aggregator_pb2.Constant) -> Constant:
    _check_name("constant", message.name, MAX_TENSOR_NAME)
    sums = message.total, message.scale
    return Constant(message.name, tuple(message.shape), message.digest, message.special, *sums)


# -------------------------------------------------------------------------------- verdicts


def verdict_to_wire(round: int, digest: bytes, verdict: Verdict) -> aggregator_pb2.Outcome:
    """Return the final word on the update of that digest."""
    counted = verdict is Verdict.COUNTED
    reason = aggregator_pb2.REASON_UNSPECIFIED if counted else VERDICTS[verdict]
    return aggregator_pb2.Outcome(round=round, digest=digest, counted=counted, reason=reason)


def verdict_from_wire(message: aggregator_pb2.Outcome) -> Verdict:
    """Return the final word; with a reason of a later version it is that the update was discarded."""
    return Verdict.COUNTED if message.counted else VERDICTS_BACK.get(message.reason, Verdict.DISCARDED)


# -------------------------------------------------------------------------------- checks


def _at_most(whose: str, what: str, count: int, limit: int) -> None:
    if count > limit:
        raise MalformedMessage(f"{whose} has {count} {what}, allowed are {limit}")


def _check_name(what: str, name: str, longest: int) -> None:
    """Names are part of a canonical text with line ends: only what can be printed."""
    if not name or len(name) > longest or not name.isprintable():
        raise MalformedMessage(f"{what} name {name[:40]!r} is not 1 to {longest} printable characters")


def _no_repeats(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise MalformedMessage(f"{what} {name!r} is there twice")
        seen.add(name)


def _same_digest(what: str, stated: bytes, computed: bytes) -> None:
    if stated != computed:
        raise MalformedMessage(
            f"digest of the {what} is {stated[:32].hex()}, its content has {computed.hex()}"
        )
