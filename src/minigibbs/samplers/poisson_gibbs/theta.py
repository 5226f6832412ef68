"""The choice of theta, the minibatch parameter: by predicted time or by a guarantee.

Time is predicted from the costs of `samplers.costs` and from the stickiness of the chain, the
empirical slowdown by minibatching.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.samplers.bounds import tail_theta
from minigibbs.samplers.costs import COSTS

UPDATE = COSTS["update"] + COSTS["choice"]  # cost of an update that evaluates no factors
TAIL, DRAW = COSTS["tail"], COSTS["draw"]
STICKINESS = 0.15  # see `stickiness`
THETAS = np.geomspace(0.05, 50.0, 25)
LARGEST_EXPONENT = 700.0  # exp of it does not overflow

QUIETLY = np.errstate(over="ignore", divide="ignore")  # infinite times and thetas are never chosen


def tail_range(tail: Any, theta: Any) -> Any:
    """Bound the sum of kept draws' log weights; it is exceeded with probability 1e-17.

    It is a bound on the Poisson count of draws, times the largest effect of one draw.
    """
    rate = (1.0 + theta) * tail
    most = rate + 9.0 * np.sqrt(rate) + 12.0
    return np.where(rate > 0.0, most * np.log1p(1.0 / theta), 0.0)


def stickiness(theta: Any, measured: float = STICKINESS) -> Any:
    """Predict the log slowdown per unit of L_T, which is far below the bound.

    The draws favor the present value of the variable: a factor at its maximum M adds
    M * ((1 + theta) * log(1 + 1/theta) - 1) to it on average. Measured slowdowns are a fraction of
    that, because not all factors are at their maximum and not all values are uncertain. The
    fraction is 0.06 on the paper's Potts model and a dense random field, and 0.3 to 0.5 on the
    Curie-Weiss model.
    """
    return measured * ((1.0 + theta) * np.log1p(1.0 / theta) - 1.0)


@QUIETLY
def best_theta(
    tail: NDArray[np.float64],
    slowdown: float | None,
    draw: float = DRAW,
    measured: float = STICKINESS,
) -> NDArray[np.float64]:
    """Return the theta of least predicted time for each tail, among those that keep a guarantee."""
    least = 0.0 if slowdown is None else tail_theta(tail, slowdown)
    grid = np.maximum(THETAS[:, None], np.broadcast_to(least, tail.shape))
    sticky = np.minimum(tail * stickiness(grid, measured), LARGEST_EXPONENT)
    time = (UPDATE + TAIL + draw * (1 + grid) * tail) * np.exp(sticky)
    best: NDArray[np.float64] = grid[time.argmin(axis=0), np.arange(len(tail))]
    return best
