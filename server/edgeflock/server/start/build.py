"""From a configuration to the parts of a run: model, data, learner, and the description that clients get."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import torch

from edgeflock.common import constants
from edgeflock.common.command.kinds import ends
from edgeflock.common.datasets.kit import augment
from edgeflock.common.datasets.kit.augment import Augmentation
from edgeflock.common.datasets.kit.registry import scaling
from edgeflock.common.flat import Change, FlatModel
from edgeflock.common.foreign import ForeignError, foreign
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.flops import operations
from edgeflock.common.run import CUSTOM, DataDescription, ModelDescription, RunDescription
from edgeflock.common.saved import Recipe
from edgeflock.common.scores import GLOBAL_TRAIN, LOSS, WISHES
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.common.tasks.kit.marking import Marking, figure_of
from edgeflock.common.tuning import adapters, optimizer, parts, schedule
from edgeflock.common.tuning.tuning import Tuning
from edgeflock.methods.kit.base import Plan, Setting
from edgeflock.methods.kit.batches import LocalData
from edgeflock.methods.kit.options import parse, texts
from edgeflock.methods.kit.registry import load
from edgeflock.methods.kit.workbench import Workbench
from edgeflock.server.config import ServerConfig
from edgeflock.server.core import target
from edgeflock.server.core.rules import Rules
from edgeflock.server.core.testing import Tests
from edgeflock.server.costs import budget, clock
from edgeflock.server.files.checkpoints import Checkpoints
from edgeflock.server.files.run_toml import SINCE
from edgeflock.server.learning.evaluator import Evaluator, Testers
from edgeflock.server.learning.learner import Learner, Terms
from edgeflock.server.learning.tools import ServerTools
from edgeflock.server.start import weights
from edgeflock.server.start.plugins import code_of
from edgeflock.server.start.samples import TestSet

log = structlog.get_logger()
_YEAR_S = 365 * 86400.0


def describe_model(config: ServerConfig, test: TestSet) -> ModelDescription:
    name = CUSTOM if ":" in config.model else config.model
    return ModelDescription(name, test.input_shape, test.classes, config.model_arg, config.task)


def told_of_model(config: ServerConfig, test: TestSet) -> dict[str, str]:
    """Return what a run's model is of, and how it is built again."""
    model = describe_model(config, test)
    recipe = Recipe(model, scaling(config.dataset), own=config.model if model.name == CUSTOM else "")
    return {**recipe.metadata(), "dataset": config.dataset or "", "method": config.method}


def build_marking(config: ServerConfig, net: Net, test: TestSet) -> Marking:
    """Return by what the run's models are scored."""
    task = net.task
    with suppress(Exception), torch.no_grad():  # of a task that takes no such labels they are not known
        _, y = task.example(test.input_shape, tokens=net.tokens)
        made = net.sums(torch.zeros(net.gives or (1, task.outputs)), y)
        lengths = {name: part.numel() for name, part in made.items()}
        return Marking(task, figure_of(task.metrics, config.watch), lengths)
    return Marking(task, figure_of(task.metrics, config.watch))


def augmentation(config: ServerConfig, test: TestSet) -> Augmentation:
    """Return what is done to the pictures of every step. Raises BadValue where samples are none."""
    found = augment.parse(config.augment)
    found.check(test.input_shape)
    return found


def build_net(config: ServerConfig, test: TestSet, *, tell: bool = False) -> Net:
    """Build the model with the run's initial parameters, those of --init where it is given;
    `tell` what they leave out."""
    net = models.build_net(describe_model(config, test), config.seed, config.model, describe_tuning(config))
    parts.require_trained(net)
    if config.init is not None:
        fresh = parts.matched(
            [name for name, _ in net.named_parameters()], parts.patterns(config.train or "")
        )
        begun = weights.put(config.init, net, config.model, {*fresh, *adapters.names(net)})
        if tell and (begun := [name for name in begun if name in fresh]):
            log.info("begun_afresh", flag="--init", file=str(config.init), tensors=begun)
    return net


def build_bench(config: ServerConfig, test: TestSet) -> Workbench:
    """Build what the server itself trains with, where it does."""
    return Workbench(
        build_net(config, test),
        threads=1,
        augment=augmentation(config, test),
        optimizer=optimizer.parse(config.client_optimizer),
    )


def build_testers(
    config: ServerConfig, test: TestSet, union: LocalData | None, marking: Marking
) -> Testers | None:
    """Build what tests models, if anything does; `union` are the samples of all shards."""
    if not config.eval_every or not len(test.y):
        return None
    net = build_net(config, test)
    others = Evaluator(build_net(config, test), marking) if tests_beside(config) else None
    train = union if config.eval_train else None
    return Testers(Evaluator(net, marking), test.data(net), others, train)


def build_learner(config: ServerConfig, test: TestSet, net: Net | None = None) -> tuple[Learner, FlatModel]:
    """Build the server's mathematics with the initial state in it."""
    net = net or build_net(config, test, tell=True)
    with foreign("the model"):
        flat = FlatModel(net)
    method = load(config.method)
    setting = Setting(
        layout=flat.layout,
        classes=test.classes,
        features=net.features,
        clients=config.clients,
        seed=config.seed,
        head=net.head_names(),
        parted=bool(flat.own_parameters),
        tested=bool(config.eval_every and client_tests(config)),
        budgets=budget.parse(config.budget),
    )
    params = parse(method.params, config.set)
    tools = ServerTools(config, lambda: build_bench(config, test), test.data(net), test.classes)
    if method.public_data:
        tools.public_data()  # what is wrong with them is said now
    terms = Terms(
        build_plan(config),
        lr_decay=config.lr_decay or 1.0,
        schedule=schedule.parse(config.schedule),
        optimizer=optimizer.parse(config.client_optimizer),
        codec=_wired(config, config.codec),
        codec_down=_wired(config, config.codec_down),
        **_operations(net, test),
        clock=clock.parse(config.clock, central=config.central),
        closing_test=_closes_with_test(config),
        tests_only=config.tests_only,
        keeps_own=has_closing_test(config),
    )
    learner = Learner(method, params, setting, flat.layouts, terms, tools)
    learner.begin(flat)
    return learner, flat


def load_round(learner: Learner, run_dir: Path, round: int, digests: tuple[str, str]) -> None:
    """Give a learner the state after a round. Raises CorruptCheckpoint if its files are others."""
    learner.load(Checkpoints(run_dir, learner.layouts), round, digests)


def _operations(net: Net, test: TestSet) -> dict[str, Any]:
    """Return the operations of a sample's forward and backward pass, and what is not in them."""
    try:
        with foreign("counting the operations"):
            found = operations(net, test.input_shape)
    except ForeignError as error:
        return {"passes": None, "uncounted": f"the model's operations are not known: {error.reason}"}
    return {"passes": (found.forward, found.backward), "uncounted": found.words}


def _wired(config: ServerConfig, codec: str) -> str:
    """Codecs are for what goes over a wire."""
    return "identity" if config.central else codec


def build_plan(config: ServerConfig) -> Plan:
    """The run's work per round, before the method has a say."""
    return Plan(
        lr=config.lr or 0.0,
        epochs=config.epochs or 1,
        steps=config.steps,
        batch_size=config.batch_size or 0,
        momentum=config.momentum or 0.0,
        weight_decay=config.weight_decay or 0.0,
    )


def client_tests(config: ServerConfig) -> tuple[str, ...]:
    """Return what clients test their own models on, when the server tests its own."""
    own = load(config.method).client_models or ("local" if config.keep_local else "off")
    return WISHES[own if config.eval_clients == "auto" else config.eval_clients]


def is_partial(config: ServerConfig) -> bool:
    """Whether rounds ask a part of the clients."""
    least, _ = ends(config.cohort)
    members = min((len(line.split()) for line in config.cohort_lines), default=least)
    return config.participation == "online" or 0 < members < config.clients


def tests_here(config: ServerConfig) -> bool:
    """Whether the server has test samples of its own."""
    return config.dataset is not None or config.eval_data is not None


def tests_on_devices(config: ServerConfig) -> bool:
    """Whether the devices test the global model that they receive: asked for, or nobody else could."""
    asked = config.eval_devices or config.tests_only or not tests_here(config)
    return bool(asked and config.eval_every) and not config.central


def _closes_with_test(config: ServerConfig) -> bool:
    """Whether clients test models once more when training is over, if there is any."""
    return not config.tests_only and (has_closing_test(config) or tests_on_devices(config))


def has_closing_test(config: ServerConfig) -> bool:
    """Whether everybody is tested when training is over: else its last round would stand for all."""
    return bool(config.eval_every and client_tests(config)) and is_partial(config) and not config.central


def tests_beside(config: ServerConfig) -> tuple[tuple[str, int], ...]:
    """Return what is tested apart from the global model, and how often."""
    often = dict.fromkeys(load(config.method).models, config.eval_models)
    return tuple((name, every) for name, every in {**often, GLOBAL_TRAIN: config.eval_train}.items() if every)


def build_tests(config: ServerConfig) -> Tests:
    metrics = tasks.load(config.task)(config.classes or 2).metrics
    figure = figure_of(metrics, config.watch)
    return Tests(
        config.eval_every,
        config.rounds,
        blocking=config.eval_blocking,
        clients=client_tests(config),
        target=target.parse(config.target, (*metrics, LOSS)),
        beside=tests_beside(config),
        figure=figure,
        here=tests_here(config),
        devices=tests_on_devices(config),
        stop_after=config.stop_after,
    )


def build_rules(config: ServerConfig) -> Rules:
    if config.central:  # one member, for whom there is nobody to go on without
        return Rules(
            rounds=config.rounds,
            clients=1,
            cohort=1,
            min_updates=1,
            deadline_s=_YEAR_S,
            central=True,
            method=config.method,
            tests=build_tests(config),
        )
    least, most = ends(config.cohort)
    return Rules(
        rounds=config.rounds,
        clients=config.clients,
        cohort=most or config.clients,
        least=least if isinstance(config.cohort, str) else 0,
        min_updates=config.min_updates,
        seed=config.seed,
        over_select=config.over_select,
        deadline_s=config.deadline,
        grace_s=config.grace,
        every_s=config.every,
        gather_s=config.max_clients_wait,
        online=config.participation == "online",
        script=tuple(tuple(line.split()) for line in config.cohort_lines),
        quarantine_after=0 if config.cohort_lines else config.quarantine_after,
        quarantine_rounds=config.quarantine_rounds,
        closes=load(config.method).closes or _closes_with_test(config),
        no_more_seats=_no_more_seats(config),
        method=config.method,
        tests=build_tests(config),
    )


def _no_more_seats(config: ServerConfig) -> str:
    """Return why the run can have no more seats than it began with."""
    method = load(config.method)
    if config.dataset is not None:
        return f"{config.dataset} is cut into as many shards"
    if method.full_participation or method.server.by_seat:
        return f"{method.name} keeps something of each of them"
    return ""


def describe_run(
    config: ServerConfig, run_id: str, epoch: int, test: TestSet, flat: FlatModel
) -> RunDescription:
    """What every client is told of the run when it joins."""
    return RunDescription(
        run_id,
        epoch,
        config.seed,
        config.method,
        options_told(config),
        describe_model(config, test),
        flat.layouts,
        describe_data(config),
        config.clients,
        constants.described(flat.constants),
        config.augment,
        tuning=describe_tuning(config),
        code=code_of(config),
        base_digest=flat.base_digest,
    )


def merging(config: ServerConfig) -> Change | None:
    """Return how the result's tensors become those of the model without adapters."""
    adapter = adapters.parse(config.adapter or "")
    return None if adapter is None else partial(adapters.merged, adapter=adapter)


def describe_tuning(config: ServerConfig) -> Tuning:
    """Return what clients are told of training beside the method."""
    steps = optimizer.parse(config.client_optimizer)
    return Tuning(
        optimizer=str(steps) if steps.adaptive else "",
        adapter=config.adapter or "",
        keep_local=config.keep_local or "",
        train=config.train or "",
    )


def options_told(config: ServerConfig) -> dict[str, str]:
    """Return the method's options without later ones that do what was done before there were any, unless
    that is not the default: an earlier client knows no such option, and needs none."""
    usual = texts(load(config.method).params())
    idle = {
        name
        for name, text in SINCE.get(config.method, {}).items()
        if config.set.get(name) == text == usual[name]
    }
    return {name: text for name, text in config.set.items() if name not in idle}


def describe_data(config: ServerConfig) -> DataDescription | None:
    if config.dataset is None:
        return None
    return DataDescription(
        dataset=config.dataset,
        partition=config.partition,
        seed=config.seed,
        shards=config.clients,
        samples_per_client=config.samples_per_client,
        public_fraction=config.public_fraction,
        public_from_shards=config.public_from_shards,
    )
