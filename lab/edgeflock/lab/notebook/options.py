"""The options of `edgeflock.simulate` and their types; `lab.reference.options_page` writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict

Place = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Every option of `fl-lab run`; None is as if it were not given."""

    config: Place | None
    """TOML file of options; what is given here wins over it"""
    method: str | None
    """method; fl-lab methods lists them  [default: fedavg]"""
    set: Mapping[str, object] | None
    """an option of the method, repeatable; --help-method lists them  [default: the method's own]"""
    rounds: int | None
    """rounds of the run  [default: 20]"""
    budget: Mapping[str, object] | None
    """a limit on what the run may use, such as time=10m, bytes=500MB, cpu=2h, energy=50kJ; repeatable
    [default: the method's own, else none]"""
    evaluate_only: Place | None
    """train nothing: the devices test this model, a .safetensors file, on their own test samples; one
    round, unless --rounds says more  [default: the run trains]"""
    clock: str | None
    """measure the time of rounds, or draw it from the seed: c of a step, b of a round beside its steps
    [default: real]"""
    target: Mapping[str, object] | None
    """end the run with the first round whose model is that good: accuracy=0.85, or mae<=0.5  [default:
    none]"""
    stop_after: int | None
    """end the run when so many tests in a row have found no better model, by --watch; 0 is never
    [default: 0]"""
    watch: str | None
    """the metric by which the best model is chosen, the first that is shown: f1, mae, loss  [default:
    the task's first]"""
    clients: int | None
    """clients of the roster  [default: 4]"""
    cohort: int | str | None
    """clients per round; 0 is all; 3..8 is all who are here, at least 3, at most 8  [default: 0]"""
    participation: str | None
    """draw cohorts from the fixed roster, or from those who are online  [default: roster]"""
    cohort_script: Place | None
    """cohorts from a file instead: one line of ids per round  [default: none]"""
    seed: int | None
    """seed of all random numbers  [default: 0]"""
    task: str | None
    """what is learned: classification, regression, multilabel, segmentation, autoencoder, next-token,
    or your own as package.module:NAME  [default: classification]"""
    model: str | None
    """model; fl-lab models lists them; or your own as package.module:factory  [default: mlp]"""
    model_arg: Mapping[str, object] | None
    """an argument of the model, repeatable  [default: none]"""
    train: str | None
    """what is trained of the model, the rest is frozen: patterns of its parameters' names or parts,
    such as head or 'fc|layer4.*'  [default: as the model says, by default all]"""
    keep_local: str | None
    """what every client trains and keeps as its own, in no bundle: patterns of parameters and buffers,
    such as '*bn*|head'  [default: nothing]"""
    adapter: str | None
    """train low-rank adapters beside the frozen layers: lora:rank=4, or with alpha=X and
    target=PATTERNS of linear and convolutional layers; with --train that part is trained whole, too
    [default: none]"""
    init: Place | None
    """weights to start from, in place of random ones: a .safetensors file with the model's tensors
    [default: random, from the seed]"""
    dataset: str | None
    """data set that is cut into shards; fl-lab datasets lists them  [default: digits, none with --eval-
    data]"""
    data_root: Place | None
    """folder with data sets in their official formats  [default: ~/.cache/edgeflock]"""
    input_shape: str | None
    """what a sample looks like, where the server has no data: 561, or 3x32x32  [default: that of the
    data]"""
    classes: int | None
    """classes, or numbers that the model is to give, where the server has no data that show all
    [default: what the data show]"""
    eval_data: Place | None
    """evaluate on x, y of this .npz, on a .csv or .parquet, or on a folder of pictures, one sub-folder
    per class, or of what fl-client --data reads besides; without --dataset it gives input shape and
    classes too  [default: none]"""
    size: int | None
    """side in pixels that images of --eval-data are resized to  [default: all are of one size]"""
    label: str | None
    """column of --eval-data, a table, that holds the labels  [default: no labels]"""
    columns: str | None
    """columns of --eval-data, a table, that are the samples, in this order  [default: all but the
    label]"""
    partition: str | None
    """how the data set is cut, e.g. dirichlet:0.5; fl-lab partition shows it  [default: iid]"""
    samples_per_client: int | None
    """samples of each shard; 0 is as many as there are  [default: 0]"""
    augment: str | None
    """what is done to pictures before a step: flip (half of them, left to right), crop:PIXELS (a piece
    of what has a margin of so many), both: flip,crop:4, and plug-ins after them  [default: none]"""
    public_data: Place | None
    """x, y of this .npz for a method that trains on the server, too, instead of a share of the data set
    [default: none]"""
    score_data: Place | None
    """x, y of this .npz for scoring updates  [default: a tenth of the public data]"""
    epochs: int | None
    """passes over the local data in a round  [default: the method's own, else 1]"""
    steps: int | None
    """steps in a round, instead of epochs; 0 returns the model unchanged  [default: none]"""
    batch_size: int | None
    """samples per step; 0 is the whole local set  [default: the method's own, else 32]"""
    lr: float | None
    """learning rate  [default: the method's own, else 0.05]"""
    momentum: float | None
    """heavy-ball momentum of the local SGD  [default: the method's own, else 0]"""
    weight_decay: float | None
    """weight decay, added to the gradient  [default: the method's own, else 0]"""
    schedule: str | None
    """how the learning rate goes over the rounds: constant or cosine, either with warmup=ROUNDS, cosine
    with floor=SHARE and rounds=ROUNDS, too, such as cosine:warmup=5  [default: constant]"""
    client_optimizer: str | None
    """the clients' steps, where the method's mathematics allow others than SGD: adamw, or
    adamw:beta1=0.9,beta2=0.999,eps=1e-8  [default: sgd]"""
    lr_decay: float | None
    """factor on the learning rate after every round  [default: the method's own, else 1]"""
    eval_every: int | None
    """evaluate every k-th round; 0 is never  [default: 1]"""
    eval_models: int | None
    """test a method's other models (pFedMo's) in evaluated rounds that k divides and the last; 0: never
    [default: 1]"""
    eval_train: int | None
    """the same for the global model on the training samples of all shards of the named data set
    [default: 0]"""
    eval_clients: str | None
    """clients test their own model on their test data, or the data set's, too; auto: as the method says
    [default: auto]"""
    eval_devices: bool | None
    """the devices test the global model that they receive, on their own test samples; always so where
    the server has no data  [default: off]"""
    eval_blocking: bool | None
    """open the next round only after the evaluation  [default: off]"""
    deadline: float | str | None
    """longest time of a round  [default: 10m]"""
    every: float | str | None
    """a round is opened so long after the one before it was, or later, as for watching a model in the
    field; 0 is at once  [default: 0s]"""
    grace: float | str | None
    """a round waits so long for a member that has gone, once the others have answered; then it goes on
    without it  [default: 1m]"""
    min_updates: int | None
    """a round closes at its deadline, or after the grace, with at least this many updates  [default:
    half of the cohort]"""
    over_select: int | None
    """extra members per round; it closes with as many updates as the cohort asks for  [default: 0]"""
    quarantine_after: int | None
    """so many bad updates of a client in a row, and it takes no part for a while; 0 is never  [default:
    5]"""
    quarantine_rounds: int | None
    """rounds that it takes no part in  [default: 20]"""
    max_clients_wait: float | str | None
    """longest wait for the roster to fill  [default: 1h]"""
    listen: str | None
    """where clients connect; port 0 takes a free one; :9300 is every interface, with TLS or --insecure
    [default: 127.0.0.1:9300]"""
    gates: int | None
    """processes on this machine that take the clients' calls and bytes for this one; clients are told
    where they are  [default: 0]"""
    gate_listen: str | None
    """where fl-gate processes of other machines attend  [default: only gates of this server's own]"""
    gate_key: Place | None
    """file with the secret by which gates are known  [default: gate.key in the run directory, made
    there]"""
    same_code: bool | None
    """refuse a client whose plug-ins are other code than the server's; else a difference is only said
    [default: off]"""
    tls_cert: Place | None
    """talk TLS with this certificate and those that vouch for it (PEM)  [default: none]"""
    tls_key: Place | None
    """its private key (PEM)  [default: none]"""
    tls_client_ca: Place | None
    """ask clients for a certificate with their id that this authority vouches for (PEM)  [default:
    none]"""
    insecure: bool | None
    """allow plain text beyond this machine  [default: off]"""
    codec: str | None
    """codec of updates  [default: identity]"""
    codec_down: str | None
    """codec of the model sent out  [default: identity]"""
    credit_mib: int | None
    """MiB of uploads that may be in flight at a time  [default: 32]"""
    control: str | None
    """where the operator's service listens: a loopback address or unix:path  [default: a Unix
    socket]"""
    reflection: bool | None
    """let gRPC tools list the services (development only)  [default: off]"""
    drain_timeout: float | str | None
    """on SIGTERM, longest time to finish a commit and park  [default: 9s]"""
    linger: float | str | None
    """at the end, time to tell every client  [default: 10s]"""
    dashboard: str | None
    """show the run to browsers and Prometheus, e.g. 8080 of this machine; port 0 takes a free one; or
    off  [default: off]"""
    dashboard_insecure: bool | None
    """let everybody who reaches it beyond this machine read the dashboard  [default: off]"""
    dashboard_host: str | None
    """with --dashboard-insecure: answer who asks for it by one of these names or localhost, not by any
    [default: none]"""
    metrics_clients: int | None
    """/metrics has series for each client in runs of at most so many  [default: 100]"""
    track: str | None
    """give options, figures and the model to MLflow or Weights & Biases, while the run goes on; where
    to, say their own variables, such as MLFLOW_TRACKING_URI and WANDB_MODE  [default: none]"""
    tensorboard: bool | None
    """write figures for TensorBoard below RUN_DIR/report/tensorboard  [default: off]"""
    run_dir: Place | None
    """directory of the run; an unfinished one is resumed  [default: runs/<UTC time>-<method>]"""
    keep_every: int | None
    """keep every k-th round's model, beside the first, the best and the last  [default: 0]"""
    log_level: str | None
    """lowest level that is logged  [default: info]"""
    log_format: str | None
    """how a line looks; auto is console on a terminal, else json  [default: auto]"""
    processes: int | None
    """client processes; fewer than clients makes each host several  [default: one per client]"""
    client_data: str | None
    """own data of the clients, e.g. file-{index}.npz: {index} is the client's number, {id} its name; or
    your own package.module:factory  [default: none]"""
    hold_out: float | None
    """share of their data that clients keep for tests and do not train on, as fl-client --hold-out
    [default: none]"""
