"""FedADM's B and H: how unlike the clients' losses and gradients are (eqs. 10-11). They steer nothing.

    B_k = sqrt(sum_i ||F_i(w)||^2 / (n ||F(w)||^2))                    eq. 10, at w_k,global
    H_k = sqrt(max(0, (1/n) sum_i ||F_i(w)||^2 - B_k^2 ||F(w)||^2))    eq. 11, which is 0 by eq. 10
So what the paper's figure shows falling cannot be H_k. Beside it are told `H_before`, eq. 11 with the B of
the round before, and the same of gradients: `B_g` = sqrt(mean_i ||grad F_i||^2) / ||grad F||, and `H_g` with
the B_g of the round before. F and grad F are weighted means, the mean of squares has weights 1/n.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping

from edgeflock.methods.fedadm.control import RESOLUTION

ROUNDED = 1e-12  # share of a sum of squares that is rounding, in float64


def of_losses(kept: MutableMapping[str, float], squares: float, whole: float) -> dict[str, float]:
    """Return B_k, H_k and H_before from the mean of the squares and F; `kept` is of the rounds before."""
    ratio = _ratio(squares, whole)
    found = {"B_k": ratio, "H_k": _left(squares, ratio * whole, ROUNDED)}
    if "B_k" in kept:
        found["H_before"] = _left(squares, kept["B_k"] * whole, ROUNDED)
    kept["B_k"] = ratio
    return found


def of_gradients(kept: MutableMapping[str, float], squares: float, whole: float) -> dict[str, float]:
    """Return B_g and H_g from the mean of the gradients' squared lengths and the length of their mean."""
    ratio = _ratio(squares, whole)
    found = {"B_g": ratio}
    if "B_g" in kept:
        found["H_g"] = _left(squares, kept["B_g"] * whole, RESOLUTION)
    kept["B_g"] = ratio
    return found


def _ratio(squares: float, whole: float) -> float:
    return math.sqrt(squares) / abs(whole) if whole else 1.0


def _left(squares: float, explained: float, noise: float) -> float:
    rest = squares - explained**2
    return math.sqrt(rest) if rest > noise * squares else 0.0
