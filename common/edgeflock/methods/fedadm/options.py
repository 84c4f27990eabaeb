"""FedADM's options, and the budget that an adaptive tau brings along."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgeflock.methods.kit.options import Params, Range, above, at_least, one_of, option

ADAPTIVE = "adaptive"
TIME_S = 60.0  # the paper's budget, where the run sets none
_FIXED = re.compile(r"fixed:([1-9]\d{0,8})")
_TAU = Range(
    lambda text: text == ADAPTIVE or _FIXED.fullmatch(text) is not None,
    "adaptive, or fixed:N with a whole number N >= 1",
)


@dataclass(frozen=True, kw_only=True)
class FedAdmParams(Params):
    """Options of FedADM."""

    mu0: float = option(0.1, "every client's first proximal weight", at_least(0), symbol="mu_0")
    alpha: float = option(0.01, "step of the proximal weights; 0 keeps them", at_least(0), symbol="alpha")
    xi: float = option(
        0.1, "distance from the anchor beyond which a proximal weight grows", at_least(0), symbol="xi"
    )
    tau: str = option(ADAPTIVE, "local steps of a round, instead of epochs and steps", _TAU, symbol="tau")
    tau_max: int = option(
        100,
        "largest tau of the search",
        at_least(1, "an integer"),
        symbol="tau_max",
        when=f"tau={ADAPTIVE}",
    )
    phi: float = option(
        0.025,
        "control parameter of the bound",
        above(0),
        symbol="phi",
        when=f"tau={ADAPTIVE}",
    )
    bound: str = option(
        "printed",
        "the bound as printed, or as it follows from eq. 18",
        one_of("printed", "corrected"),
        when=f"tau={ADAPTIVE}",
    )
    restart: str = option(
        "latest", "start local work from the last aggregate or the best", one_of("latest", "best")
    )
    batches: str = option(
        "own",
        "the order of every client's batches: drawn for itself, or one for all of them (cases of the paper)",
        one_of("own", "equal"),
    )
    result: str = option("best", "the run's model: the best aggregate or the last", one_of("best", "latest"))

    @property
    def fixed(self) -> int:
        """The fixed tau; 0 if it is adaptive."""
        match = _FIXED.fullmatch(self.tau)
        return int(match[1]) if match else 0

    @property
    def adaptive(self) -> bool:
        return self.tau == ADAPTIVE


def default_budget(params: FedAdmParams) -> dict[str, float]:
    """An adaptive tau needs a budget of time; a fixed one knows none but those that the run sets."""
    return {"time": TIME_S} if params.adaptive else {}
