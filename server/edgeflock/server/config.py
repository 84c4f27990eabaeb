"""The server's configuration: every option, its default and range, and whether it identifies the run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edgeflock.common import listing
from edgeflock.common.command.kinds import (
    COLUMNS,
    FLAG,
    IDS,
    INTEGER,
    LINES,
    NUMBER,
    PAIRS,
    PATH,
    SECONDS,
    SPAN,
    TEXT,
    ends,
)
from edgeflock.common.command.log import log_format_option, log_level_option
from edgeflock.common.command.options import option
from edgeflock.common.command.ranges import Range, above, at_least, between, one_of, unit
from edgeflock.common.plugins.loading import is_reference, parted
from edgeflock.common.wire.address import Address, parse_address

_RUN, _DATA, _WORK = "Run", "Model and data", "Local training"
_ROUND, _NET, _FILES = "Rounds and stragglers", "Network", "Files and logs"
_VIEW = "Dashboard and metrics"
TRACKERS = ("mlflow", "tensorboard", "wandb")
_OWN = "the method's own, else "
_SHAPE = re.compile(r"[1-9]\d{0,8}(x[1-9]\d{0,8}){0,7}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What one run is and how it is served. None means: not said, `resolve` fills it."""

    method: str = option(
        "fedavg",
        TEXT,
        "method; fl-lab methods lists them",
        group=_RUN,
        identity=True,
        metavar="NAME",
        choices=listing.methods,
    )
    set: dict[str, str] = option(
        {},
        PAIRS,
        "an option of the method, repeatable; --help-method lists them",
        group=_RUN,
        identity=True,
        table="method",
        shown="the method's own",
    )
    rounds: int = option(20, INTEGER, "rounds of the run", group=_RUN, allowed=at_least(1, "an integer"))
    budget: dict[str, str] = option(
        {},
        PAIRS,
        "a limit on what the run may use, such as time=10m, bytes=500MB, cpu=2h, energy=50kJ; repeatable",
        group=_RUN,
        shown="the method's own, else none",
        metavar="WHAT=LIMIT",
        allowed=Range(lambda limits: True, "time=60s, bytes=500MB, cpu=2h or energy=50kJ"),
    )
    evaluate_only: Path | None = option(
        None,
        PATH,
        "train nothing: the devices test this model, a .safetensors file, on their own test samples; one "
        "round, unless --rounds says more",
        group=_RUN,
        shown="the run trains",
        metavar="MODEL",
    )
    tests_only: bool = option(False, FLAG, "nothing is trained", group=_RUN, identity=True, internal=True)
    clock: str = option(
        "real",
        TEXT,
        "measure the time of rounds, or draw it from the seed: c of a step, b of a round beside its steps",
        group=_RUN,
        identity=True,
        metavar="real|simulated",
        allowed=Range(lambda text: True, "real, simulated, or simulated:c=13ms,b=0.13"),
    )
    target: dict[str, str] = option(
        {},
        PAIRS,
        "end the run with the first round whose model is that good: accuracy=0.85, or mae<=0.5",
        group=_RUN,
        shown="none",
        metavar="accuracy=X",
    )
    stop_after: int = option(
        0,
        INTEGER,
        "end the run when so many tests in a row have found no better model, by --watch; 0 is never",
        group=_RUN,
        allowed=at_least(0, "an integer"),
        metavar="TESTS",
    )
    watch: str | None = option(
        None,
        TEXT,
        "the metric by which the best model is chosen, the first that is shown: f1, mae, loss",
        group=_RUN,
        identity=True,
        shown="the task's first",
        metavar="METRIC",
    )
    clients: int = option(
        4,
        INTEGER,
        "clients of the roster",
        group=_RUN,
        allowed=between(1, 1_000_000, "an integer"),
        identity=True,
    )
    cohort: int | str = option(
        0,
        SPAN,
        "clients per round; 0 is all; 3..8 is all who are here, at least 3, at most 8",
        group=_RUN,
        allowed=Range(lambda span: ends(span)[0] >= 0, "an integer >= 0, or a range such as 3..8"),
        identity=True,
    )
    participation: str = option(
        "roster",
        TEXT,
        "draw cohorts from the fixed roster, or from those who are online",
        group=_RUN,
        allowed=one_of("roster", "online"),
        identity=True,
        metavar="roster|online",
    )
    cohort_script: Path | None = option(
        None, PATH, "cohorts from a file instead: one line of ids per round", group=_RUN, metavar="FILE"
    )
    cohort_lines: tuple[str, ...] = option(
        (), LINES, "the lines of the cohort script", group=_RUN, identity=True, internal=True
    )
    seed: int = option(
        0,
        INTEGER,
        "seed of all random numbers",
        group=_RUN,
        allowed=between(0, 2**63 - 1, "an integer"),
        identity=True,
    )

    task: str = option(
        "classification",
        TEXT,
        "what is learned: classification, regression, multilabel, segmentation, autoencoder, next-token, or "
        "your own as package.module:NAME",
        group=_DATA,
        identity=True,
        metavar="NAME",
        choices=listing.tasks,
    )
    model: str = option(
        "mlp",
        TEXT,
        "model; fl-lab models lists them; or your own as package.module:factory",
        group=_DATA,
        identity=True,
        metavar="NAME",
        choices=listing.models,
    )
    model_arg: dict[str, str] = option(
        {}, PAIRS, "an argument of the model, repeatable", group=_DATA, identity=True, table="model"
    )
    train: str | None = option(
        None,
        TEXT,
        "what is trained of the model, the rest is frozen: patterns of its parameters' names or parts, "
        "such as head or 'fc|layer4.*'",
        group=_DATA,
        identity=True,
        shown="as the model says, by default all",
        metavar="PATTERNS",
    )
    keep_local: str | None = option(
        None,
        TEXT,
        "what every client trains and keeps as its own, in no bundle: patterns of parameters and buffers, "
        "such as '*bn*|head'",
        group=_DATA,
        identity=True,
        shown="nothing",
        metavar="PATTERNS",
    )
    adapter: str | None = option(
        None,
        TEXT,
        "train low-rank adapters beside the frozen layers: lora:rank=4, or with alpha=X and target=PATTERNS "
        "of linear and convolutional layers; with --train that part is trained whole, too",
        group=_DATA,
        identity=True,
        shown="none",
        metavar="lora:rank=N",
    )
    init: Path | None = option(
        None,
        PATH,
        "weights to start from, in place of random ones: a .safetensors file with the model's tensors",
        group=_DATA,
        shown="random, from the seed",
        metavar="FILE",
    )
    init_sha256: str | None = option(
        None, TEXT, "content of the file", group=_DATA, identity=True, internal=True
    )
    dataset: str | None = option(
        "digits",
        TEXT,
        "data set that is cut into shards; fl-lab datasets lists them",
        group=_DATA,
        identity=True,
        nullable=True,
        shown="digits, none with --eval-data",
        metavar="NAME",
        choices=listing.datasets,
    )
    data_root: Path | None = option(
        None,
        PATH,
        "folder with data sets in their official formats",
        group=_DATA,
        shown="~/.cache/edgeflock",
        metavar="DIR",
    )
    input_shape: str | None = option(
        None,
        TEXT,
        "what a sample looks like, where the server has no data: 561, or 3x32x32",
        group=_DATA,
        identity=True,
        shown="that of the data",
        allowed=Range(lambda text: bool(_SHAPE.fullmatch(text)), "sides such as 561 or 3x32x32"),
        metavar="SHAPE",
    )
    classes: int = option(
        0,
        INTEGER,
        "classes, or numbers that the model is to give, where the server has no data that show all",
        group=_DATA,
        identity=True,
        shown="what the data show",
        allowed=between(0, 100_000, "an integer"),
    )
    eval_data: Path | None = option(
        None,
        PATH,
        "evaluate on x, y of this .npz, on a .csv or .parquet, or on a folder of pictures, one sub-folder "
        "per class, or of what fl-client --data reads besides; without --dataset it gives input shape and "
        "classes too",
        group=_DATA,
        metavar="SOURCE",
    )
    size: int | None = option(
        None,
        INTEGER,
        "side in pixels that images of --eval-data are resized to",
        group=_DATA,
        allowed=between(1, 4096, "a number of pixels"),
        shown="all are of one size",
        metavar="PIXELS",
    )
    label: tuple[str, ...] = option(
        (), COLUMNS, "column of --eval-data, a table, that holds the labels", group=_DATA, shown="no labels"
    )
    columns: tuple[str, ...] = option(
        (),
        COLUMNS,
        "columns of --eval-data, a table, that are the samples, in this order",
        group=_DATA,
        shown="all but the label",
    )
    partition: str = option(
        "iid",
        TEXT,
        "how the data set is cut, e.g. dirichlet:0.5; fl-lab partition shows it",
        group=_DATA,
        identity=True,
        metavar="SCHEME",
        choices=listing.partitions,
    )
    samples_per_client: int = option(
        0,
        INTEGER,
        "samples of each shard; 0 is as many as there are",
        group=_DATA,
        allowed=at_least(0, "an integer"),
        identity=True,
    )
    augment: str = option(
        "none",
        TEXT,
        "what is done to pictures before a step: flip (half of them, left to right), crop:PIXELS (a piece of "
        "what has a margin of so many), both: flip,crop:4, and plug-ins after them",
        group=_DATA,
        identity=True,
        metavar="none|flip,crop:N,NAME",
    )
    public_data: Path | None = option(
        None,
        PATH,
        "x, y of this .npz for a method that trains on the server, too, instead of a share of the data set",
        group=_DATA,
        metavar="FILE",
    )
    score_data: Path | None = option(
        None,
        PATH,
        "x, y of this .npz for scoring updates",
        group=_DATA,
        shown="a tenth of the public data",
        metavar="FILE",
    )
    public_data_sha256: str | None = option(
        None, TEXT, "content of the file", group=_DATA, identity=True, internal=True
    )
    score_data_sha256: str | None = option(
        None, TEXT, "content of the file", group=_DATA, identity=True, internal=True
    )
    public_fraction: float = option(
        0.0,
        NUMBER,
        "share of the data kept by the server before the cut: runs of an earlier edgeflock",
        group=_DATA,
        identity=True,
        internal=True,
    )
    public_from_shards: float = option(
        0.0,
        NUMBER,
        "share of the data kept by the server, of every shard after the cut",
        group=_DATA,
        identity=True,
        internal=True,
    )
    central: bool = option(
        False, FLAG, "the server trains; no client is contacted", group=_DATA, identity=True, internal=True
    )

    epochs: int | None = option(
        None,
        INTEGER,
        "passes over the local data in a round",
        group=_WORK,
        allowed=at_least(1, "an integer"),
        identity=True,
        shown=_OWN + "1",
    )
    steps: int | None = option(
        None,
        INTEGER,
        "steps in a round, instead of epochs; 0 returns the model unchanged",
        group=_WORK,
        allowed=at_least(0, "an integer"),
        identity=True,
    )
    batch_size: int | None = option(
        None,
        INTEGER,
        "samples per step; 0 is the whole local set",
        group=_WORK,
        allowed=at_least(0, "an integer"),
        identity=True,
        shown=_OWN + "32",
    )
    lr: float | None = option(
        None, NUMBER, "learning rate", group=_WORK, allowed=at_least(0), identity=True, shown=_OWN + "0.05"
    )
    momentum: float | None = option(
        None,
        NUMBER,
        "heavy-ball momentum of the local SGD",
        group=_WORK,
        allowed=unit(high=False),
        identity=True,
        shown=_OWN + "0",
    )
    weight_decay: float | None = option(
        None,
        NUMBER,
        "weight decay, added to the gradient",
        group=_WORK,
        allowed=at_least(0),
        identity=True,
        shown=_OWN + "0",
    )
    schedule: str = option(
        "constant",
        TEXT,
        "how the learning rate goes over the rounds: constant or cosine, either with warmup=ROUNDS, "
        "cosine with floor=SHARE and rounds=ROUNDS, too, such as cosine:warmup=5",
        group=_WORK,
        identity=True,
        metavar="SCHEDULE",
    )
    client_optimizer: str = option(
        "sgd",
        TEXT,
        "the clients' steps, where the method's mathematics allow others than SGD: "
        "adamw, or adamw:beta1=0.9,beta2=0.999,eps=1e-8",
        group=_WORK,
        identity=True,
        metavar="sgd|adamw",
    )
    lr_decay: float | None = option(
        None,
        NUMBER,
        "factor on the learning rate after every round",
        group=_WORK,
        allowed=above(0),
        identity=True,
        shown=_OWN + "1",
    )

    eval_every: int = option(
        1, INTEGER, "evaluate every k-th round; 0 is never", group=_ROUND, allowed=at_least(0, "an integer")
    )
    eval_models: int = option(
        1,
        INTEGER,
        "test a method's other models (pFedMo's) in evaluated rounds that k divides and the last; 0: never",
        group=_ROUND,
        allowed=at_least(0, "an integer"),
        metavar="K",
    )
    eval_train: int = option(
        0,
        INTEGER,
        "the same for the global model on the training samples of all shards of the named data set",
        group=_ROUND,
        allowed=at_least(0, "an integer"),
        metavar="K",
    )
    eval_clients: str = option(
        "auto",
        TEXT,
        "clients test their own model on their test data, or the data set's, too; auto: as the method says",
        group=_ROUND,
        allowed=one_of("auto", "off", "local", "both"),
        metavar="auto|off|local|both",
    )
    eval_devices: bool = option(
        False,
        FLAG,
        "the devices test the global model that they receive, on their own test samples; always so where the "
        "server has no data",
        group=_ROUND,
    )
    eval_blocking: bool = option(False, FLAG, "open the next round only after the evaluation", group=_ROUND)
    deadline: float = option(
        600.0, SECONDS, "longest time of a round", group=_ROUND, allowed=above(0, "a time")
    )
    every: float = option(
        0.0,
        SECONDS,
        "a round is opened so long after the one before it was, or later, as for watching a model in the "
        "field; 0 is at once",
        group=_ROUND,
        allowed=at_least(0, "a time"),
    )
    grace: float = option(
        60.0,
        SECONDS,
        "a round waits so long for a member that has gone, once the others have answered; then it goes on "
        "without it",
        group=_ROUND,
        allowed=at_least(0, "a time"),
    )
    min_updates: int = option(
        0,
        INTEGER,
        "a round closes at its deadline, or after the grace, with at least this many updates",
        group=_ROUND,
        allowed=at_least(0, "an integer"),
        shown="half of the cohort",
    )
    over_select: int = option(
        0,
        INTEGER,
        "extra members per round; it closes with as many updates as the cohort asks for",
        group=_ROUND,
        allowed=at_least(0, "an integer"),
        identity=True,
    )
    quarantine_after: int = option(
        5,
        INTEGER,
        "so many bad updates of a client in a row, and it takes no part for a while; 0 is never",
        group=_ROUND,
        allowed=at_least(0, "an integer"),
    )
    quarantine_rounds: int = option(
        20, INTEGER, "rounds that it takes no part in", group=_ROUND, allowed=at_least(1, "an integer")
    )
    max_clients_wait: float = option(
        3600.0, SECONDS, "longest wait for the roster to fill", group=_ROUND, allowed=above(0, "a time")
    )

    listen: str = option(
        "127.0.0.1:9300",
        TEXT,
        "where clients connect; port 0 takes a free one; :9300 is every interface, with TLS or --insecure",
        group=_NET,
        metavar="ADDRESS",
    )
    gates: int = option(
        0,
        INTEGER,
        "processes on this machine that take the clients' calls and bytes for this one; clients are told "
        "where they are",
        group=_NET,
        allowed=between(0, 256, "an integer"),
    )
    gate_listen: str | None = option(
        None,
        TEXT,
        "where fl-gate processes of other machines attend",
        group=_NET,
        metavar="ADDRESS",
        shown="only gates of this server's own",
    )
    gate_key: Path | None = option(
        None,
        PATH,
        "file with the secret by which gates are known",
        group=_NET,
        metavar="FILE",
        shown="gate.key in the run directory, made there",
    )
    same_code: bool = option(
        False,
        FLAG,
        "refuse a client whose plug-ins are other code than the server's; else a difference is only said",
        group=_NET,
    )
    tls_cert: Path | None = option(
        None,
        PATH,
        "talk TLS with this certificate and those that vouch for it (PEM)",
        group=_NET,
        metavar="FILE",
    )
    tls_key: Path | None = option(None, PATH, "its private key (PEM)", group=_NET, metavar="FILE")
    tls_client_ca: Path | None = option(
        None,
        PATH,
        "ask clients for a certificate with their id that this authority vouches for (PEM)",
        group=_NET,
        metavar="FILE",
    )
    insecure: bool = option(False, FLAG, "allow plain text beyond this machine", group=_NET)
    codec: str = option(
        "identity",
        TEXT,
        "codec of updates",
        group=_NET,
        identity=True,
        metavar="CODEC",
        choices=listing.codecs,
    )
    codec_down: str = option(
        "identity",
        TEXT,
        "codec of the model sent out",
        group=_NET,
        identity=True,
        metavar="CODEC",
        choices=listing.codecs,
    )
    credit_mib: int = option(
        32,
        INTEGER,
        "MiB of uploads that may be in flight at a time",
        group=_NET,
        allowed=between(1, 65536, "an integer"),
    )
    control: str | None = option(
        None,
        TEXT,
        "where the operator's service listens: a loopback address or unix:path",
        group=_NET,
        shown="a Unix socket",
        metavar="ADDRESS",
    )
    reflection: bool = option(False, FLAG, "let gRPC tools list the services (development only)", group=_NET)
    drain_timeout: float = option(
        9.0,
        SECONDS,
        "on SIGTERM, longest time to finish a commit and park",
        group=_NET,
        allowed=at_least(0, "a time"),
    )
    linger: float = option(
        10.0, SECONDS, "at the end, time to tell every client", group=_NET, allowed=at_least(0, "a time")
    )

    dashboard: str | None = option(
        None,
        TEXT,
        "show the run to browsers and Prometheus, e.g. 8080 of this machine; port 0 takes a free one; or off",
        group=_VIEW,
        shown="off",
        metavar="ADDRESS",
    )
    dashboard_insecure: bool = option(
        False, FLAG, "let everybody who reaches it beyond this machine read the dashboard", group=_VIEW
    )
    dashboard_host: tuple[str, ...] = option(
        (),
        IDS,
        "with --dashboard-insecure: answer who asks for it by one of these names or localhost, not by any",
        group=_VIEW,
        metavar="NAME,NAME...",
    )
    metrics_clients: int = option(
        100,
        INTEGER,
        "/metrics has series for each client in runs of at most so many",
        group=_VIEW,
        allowed=between(0, 10_000, "an integer"),
    )

    track: tuple[str, ...] = option(
        (),
        IDS,
        "give options, figures and the model to MLflow or Weights & Biases, while the run goes on; "
        "where to, say their own variables, such as MLFLOW_TRACKING_URI and WANDB_MODE",
        group=_VIEW,
        metavar="mlflow|wandb,...",
        allowed=Range(
            lambda names: set(names) <= set(TRACKERS),
            "mlflow, tensorboard or wandb, several with commas",
            TRACKERS,
        ),
    )
    tensorboard: bool = option(
        False, FLAG, "write figures for TensorBoard below RUN_DIR/report/tensorboard", group=_VIEW
    )

    run_dir: Path | None = option(
        None,
        PATH,
        "directory of the run; an unfinished one is resumed",
        group=_FILES,
        shown="runs/<UTC time>-<method>",
        metavar="DIR",
    )
    keep_every: int = option(
        0,
        INTEGER,
        "keep every k-th round's model, beside the first, the best and the last",
        group=_FILES,
        allowed=at_least(0, "an integer"),
    )
    log_level: str = log_level_option(_FILES)
    log_format: str = log_format_option(_FILES)


def takes_gates(config: ServerConfig) -> bool:
    """Whether clients may come by way of gates."""
    return bool(config.gates) or config.gate_listen is not None


def gate_address(config: ServerConfig) -> Address | None:
    """Return where gates of other machines attend."""
    safe = config.insecure or config.tls_cert is not None
    return parse_address(config.gate_listen, "--gate-listen", everywhere=safe) if config.gate_listen else None


def listen_address(config: ServerConfig) -> Address:
    """Return where clients connect: `:port` is every interface with TLS or --insecure, else this machine."""
    safe = config.insecure or config.tls_cert is not None
    return parse_address(config.listen, "--listen", any_port=True, everywhere=safe)


def names(config: ServerConfig) -> list[tuple[str, str]]:
    """Return what a run names that may be a plug-in: kind and name, without arguments; its model aside."""
    known = [name.partition(":")[0] for name in listing.datasets()]
    found = [
        ("methods", config.method),
        ("tasks", config.task),
        ("datasets", parted(config.dataset or "", known)[0]),
        ("partitions", parted(config.partition, listing.partitions())[0]),
        *(("transforms", parted(part.strip(), ("crop",))[0]) for part in config.augment.split(",")),
    ]
    return [(kind, name) for kind, name in found if name]


def references(config: ServerConfig) -> tuple[str, ...]:
    """Return the foreign code that a device must have allowed by name; a model is named there by --model."""
    return tuple(name for _, name in names(config) if is_reference(name))


def default_run_dir(method: str) -> Path:
    """Return the directory of a run that starts now."""
    return Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{method.replace(':', '-')}"
