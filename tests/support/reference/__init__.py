"""The reference of every method in float64 NumPy, by the method's name."""

from __future__ import annotations

from support.reference.adaptive import FedAdagrad, FedAdam, FedYogi
from support.reference.base import FedAvg
from support.reference.controls import FedDc, Mime, MimeLite, Scaffold
from support.reference.features import FedNtd, FedTr, Moon
from support.reference.fedadm import FedAdm
from support.reference.nesterov import FastSlowMo, FedNag, PFedMo
from support.reference.proximal import FedDyn, FedProx, FedTrip
from support.reference.servers import Domo, FedAdc, FedExp, FedMom, SlowMo
from support.reference.sharpness import FedCm, FedMrur, MoFedSam

REFERENCES: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedtrip": FedTrip,
    "fedtr": FedTr,
    "fedadm": FedAdm,
    "pfedmo": PFedMo,
    "fedmrur": FedMrur,
    "scaffold": Scaffold,
    "moon": Moon,
    "feddyn": FedDyn,
    "feddc": FedDc,
    "fedntd": FedNtd,
    "slowmo": SlowMo,
    "fedmom": FedMom,
    "fednag": FedNag,
    "mime": Mime,
    "mimelite": MimeLite,
    "fastslowmo": FastSlowMo,
    "domo": Domo,
    "fedadc": FedAdc,
    "fedcm": FedCm,
    "mofedsam": MoFedSam,
    "fedexp": FedExp,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
}
