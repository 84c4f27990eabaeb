"""The interface of a method: two halves of small hooks whose defaults together are FedAvg.

A method knows vectors and scalars; it never sees a socket, a file or a daemon.
The server half owns the global state, the client half one client's local round.
Hooks are named in METHODS order: S0 prepare ... S7 result, C1 begin ... C6 end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from torch import Tensor

from edgeflock.common.payload.layout import Layout
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.accumulate import Accumulators, Update
from edgeflock.methods.kit.effort import Effort
from edgeflock.methods.kit.local import Batch, Local
from edgeflock.methods.kit.options import P, Params
from edgeflock.methods.kit.tools import Tools
from edgeflock.methods.kit.values import Outlook, Plan, Round, Setting, State

__all__ = [
    "Accumulators",
    "Batch",
    "ClientHalf",
    "Effort",
    "Kind",
    "Local",
    "Method",
    "Outlook",
    "Params",
    "Plan",
    "Round",
    "ServerHalf",
    "Setting",
    "State",
    "Training",
    "Update",
]

Bundles = dict[Kind, Tensor]

OWN_MODEL, OWN_BUFFERS = "own model", "own buffers"  # in a client's state, of its last participation
KEEP_OWN = (
    "keep_own"  # a flag of a plan: they are to be kept, for the test of everybody when training is over
)


class ServerHalf(Generic[P]):
    """The server's half of a method. State is changed in place in `begin` and `commit` only."""

    second_walk = False  # True: `second` sees every update again once all are folded
    scalars: tuple[str, ...] = ()  # the method's own numbers that every update must hold
    closing_tests = False  # the closing task tests clients' own models and nothing else: no cost of the run
    closing_scalars: tuple[str, ...] = ()  # those that every answer to the closing task must hold

    by_seat = False  # whether its state has a place for each seat, so that there can be no more of them
    going = True  # False when the process goes down: what is long ends early, the round will be repeated

    def __init__(self, params: P, setting: Setting, tools: Tools | None = None) -> None:
        self.params = params
        self.setting = setting
        self._tools = tools

    @property
    def tools(self) -> Tools:
        """A workbench and the server's data, for methods that compute on the server (S0, scores)."""
        if self._tools is None:
            raise RuntimeError("this half was made without tools")
        return self._tools

    def begin(self, state: State) -> None:
        """Add the method's own vectors and scalars to the initial state, which holds `model`."""

    def prepare(self, state: State, round: Round) -> State | None:
        """S0: long computation that needs no update; runs beside the open round, in a thread of its own.

        Repeatable: from committed state only. None says that it was cut short, `going` being False.
        The scalars of what it returns say how much it trained, as `Local.effort` does, for the operations.
        """
        return None

    def plan(self, state: State, plan: Plan, round: Round) -> Plan:
        """S1: change the run's plan for this round."""
        return plan

    def broadcast(self, state: State, round: Round) -> Bundles:
        """S2: what goes to everybody. A bundle that is zero by definition is left out."""
        return {Kind.MODEL: state.model}

    def optional(self, state: State, round: Round) -> Bundles:
        """What only those fetch who lack it (see ClientHalf.lacks)."""
        return {}

    def personal(self, state: State, round: Round, seat: int) -> Bundles:
        """S3: what goes to one client alone, formed when it is asked for."""
        return {}

    def personal_kinds(self, round: Round) -> tuple[Kind, ...]:
        """The kinds that `personal` returns; they are not part of the broadcast."""
        return ()

    def layout(self, kind: Kind) -> Layout:
        """The layout of a bundle; that of the model unless the method says otherwise."""
        return self.setting.layout

    def uploads(self, round: Round) -> tuple[Kind, ...]:
        """The bundles of an update, in order (the model's buffers are added by the engine)."""
        return (Kind.DELTA,)

    def sums(self) -> Mapping[str, Layout]:
        """The accumulators that `fold` adds to, by name."""
        return {"delta": self.setting.layout}

    def fold(self, sums: Accumulators, update: Update, weight: float) -> None:
        """S4: add one update; called in ascending order of seats. `weight` follows the weighting option.

        `sums` are those of some seats: what they hold must be additive, since they are added to others.
        Where the method is summed `by_parts`, all that may be read is the update and `sums.round.closing`;
        else `sums.state` and `sums.round` are at hand, too.
        """
        sums.add("delta", update, Kind.DELTA, weight)

    def second(self, sums: Accumulators, update: Update, weight: float) -> None:
        """The second walk over the spool (FedADM): vectors and weights in `sums` are those of the sum of all,
        to be read; what is counted is added to its scalars."""

    def commit(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        """S5: turn the sums into the next state, in place, and return metrics of the round."""
        state.model.add_(sums.mean("delta"))
        return {}

    def models(self, state: State) -> Iterator[tuple[str, Tensor]]:
        """S6: models to test beside the result (which is `global`), one after the other, each with its name.

        Those of the same name are summarised: mean, deviation, worst tenth. Each vector is used before the
        next one is asked for. It is asked beside the next rounds, in any thread, of a copy of what they are
        made of, and of nothing else.
        """
        yield from ()

    def made_of(self, state: State) -> Iterable[str]:
        """S6: the vectors of which `models`, with their `buffers`, are made; scalars always are."""
        return state.vectors

    def buffers(self, state: State, name: str) -> Tensor:
        """S6: the float buffers (BatchNorm) of the models of that name."""
        return state.vectors["buffers"]

    @property
    def has_global(self) -> bool:
        """S6: whether the result is a whole model; if not it is not tested (FedTR's private heads, parts of
        the model that clients keep as their own)."""
        return not self.setting.parted

    @property
    def has_result(self) -> bool:
        """S7: whether the result is a model to hand out, be it without what clients keep as their own."""
        return self.has_global or self.setting.parted

    def result(self, state: State) -> Tensor:
        """S7: the parameters of the run's model."""
        return state.model

    def result_of(self, state: State, seat: int) -> Tensor | None:
        """S7: the parameters of a client's own model, where the server forms it; None: it forms none."""
        return None

    def closing(self, state: State) -> Plan | None:
        """S7: the plan of one last task to the whole roster, not counted as a round; None: there is none.

        Its steps are 0 and its batch size is the run's, whatever the plan says. What is broadcast is asked
        for as in any round.
        """
        return None

    def fold_closing(self, sums: Accumulators, update: Update, weight: float) -> None:
        """Count the numbers of one answer to the closing task (`sums.count` only: it holds no bundles)."""

    def commit_closing(self, state: State, sums: Accumulators, round: Round) -> dict[str, float]:
        """Settle what `result` returns; perhaps nobody answered the closing task (`sums.updates` is 0).

        `round.number` is one more than that of the last counted round, `round.cohort` are those who answered.
        """
        return {}


class ClientHalf(Generic[P]):
    """The client's half of a method: one local round. `work` holds all that a hook may read or change.

    Order inside a step: backward -> gradient -> weight decay -> clip -> step -> after_step.
    """

    def __init__(self, params: P, setting: Setting) -> None:
        self.params = params
        self.setting = setting

    def lacks(self, state: State, flags: Mapping[str, float]) -> bool:
        """Whether this client must fetch the optional bundles."""
        return False

    def begin(self, work: Local) -> None:
        """C1: set `work.params` (already equal to `work.start`) and read `work.state`, `work.received`."""

    def loss(self, work: Local, batch: Batch, features: Tensor, logits: Tensor) -> Tensor | None:
        """C2: an extra differentiable term of the loss."""
        return None

    def backward(self, work: Local, batch: Batch) -> Tensor:
        """C4: fill `work.grads` with the gradient on the batch and return the loss."""
        return work.compute(batch)

    def gradient(self, work: Local) -> None:
        """C3: add closed-form terms to `work.grads`, in place."""

    def step(self, work: Local) -> None:
        """C5: the update rule; heavy ball with the run's momentum."""
        work.heavy_ball()

    def after_step(self, work: Local) -> None:
        """Update what moves with every step (FedTR's descent)."""

    def end(self, work: Local) -> Bundles:
        """C6: return the update's bundles and write the candidate state to `work.new_state`."""
        return {Kind.DELTA: work.delta()}

    def sent(self, work: Local, decoded: Bundles) -> None:
        """Move state that mirrors a server's sum by what the server will decode (SCAFFOLD, FedDyn)."""

    def close(self, work: Local) -> None:
        """Answer the closing task: no step is done, the state does not change; fill `work.scalars`."""

    def own_model(self, work: Local) -> Tensor | None:
        """The client's own model, which it tests on its local test data; None: it has none.

        Asked after the local work, or in the closing task after `close`: then it is that of the client's last
        participation, kept for that where rounds ask a part of the clients, or else the received one.
        """
        return work.params if work.steps_done else work.state.vectors.get(OWN_MODEL, work.params)

    def own_buffers(self, work: Local) -> Tensor | None:
        """The float buffers (BatchNorm) of that model; None: as `work.model` has them now."""
        return None if work.steps_done else work.state.vectors.get(OWN_BUFFERS)

    def kept_model(self, state: State) -> tuple[Tensor, Tensor | None] | None:
        """Parameters and float buffers of the client's own model where it is the result of the run for this
        client, and its state holds it; None: the server has the result."""
        return None


@dataclass(frozen=True)
class Training:
    """A method's own defaults of the run's training options; None leaves the run's default."""

    lr: float | None = None
    lr_decay: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    epochs: int | None = None


def _no_budget(params: Params) -> Mapping[str, float]:
    return {}


def _no_caution(params: Params, outlook: Outlook) -> str:
    return ""


def _nothing_more(params: Params, effort: Effort) -> float:
    return 0.0


@dataclass(frozen=True)
class Method:
    """A method: its options, its two halves, and what it asks of a run."""

    name: str
    summary: str
    params: type[Params] = Params
    server: type[ServerHalf[Any]] = ServerHalf
    client: type[ClientHalf[Any]] = ClientHalf
    training: Training = Training()
    uniform: bool = False  # the table's weighting: equal instead of by samples
    full_participation: bool = False
    own_momentum: bool = False  # the run's momentum must be 0
    any_optimizer: bool = False  # its mathematics hold whatever steps the clients make: AdamW, too
    public_data: bool = False  # the server trains on data of its own, and scores on others
    # Whether a process that has a part of the updates, and neither the server's state nor what S0 has made of
    # it, can sum them. A method with a second walk is asked twice: then it has the sum of all, too.
    by_parts: bool = True
    central: bool = False  # no client is contacted
    classes: str = ""  # why every sample must be of one class: the end of a sentence; empty: it need not be
    own_steps: bool = False  # it says itself how many a round has: the run's steps and epochs have no effect
    models: tuple[str, ...] = ()  # names of those that the server tests beside the result
    client_models: str = ""  # tested by clients on "local" test data, or on "both" these and pooled ones
    budget: Callable[[Any], Mapping[str, float]] = _no_budget  # limits where the run sets none
    caution: Callable[[Any, Outlook], str] = _no_caution  # a sentence for who runs it far from where it works
    # Operations of a client's round beside the passes and steps of FedAvg; of one that is not its first.
    extra_flops: Callable[[Any, Effort], float] = _nothing_more

    @property
    def closes(self) -> bool:
        """Whether the method may have a closing task."""
        return self.server.closing is not ServerHalf.closing

    def weight(self, params: Params, samples: int) -> float:
        """Return the weight of an update in the mean."""
        uniform = params.weighting == "uniform" or (params.weighting == "table" and self.uniform)
        return 1.0 if uniform else float(samples)
