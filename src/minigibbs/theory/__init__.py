"""Transition matrices by enumeration, bounds on log Z, and the theorems of the paper.

>>> import minigibbs as mg
>>> pair = mg.FactorGraph([2, 2], [mg.Ising([0], [1], 0.5)])
>>> mg.theory.transition(pair, mg.Gibbs()).matrix.shape
(4, 4)
"""

from minigibbs.exact.bounds import Bounds, log_z_bounds
from minigibbs.exact.distributions import Distribution
from minigibbs.exact.elimination import treewidth_bound
from minigibbs.exact.enumeration import MOST_STATES, Enumeration
from minigibbs.exact.join_graph import Propagation, propagate
from minigibbs.theory.bounds import (
    Comparison,
    largest_deviation,
    lemma_1,
    lemma_2,
    lemma_2_repaired,
    lemma_2_sharper,
    poisson_gibbs_bound,
    promise,
    systematic_promise,
    systematic_slowdown,
    theorem_1,
    theorem_2,
    theorem_2_repaired,
    theorem_3,
    theorem_4,
    theorem_4_repaired,
    theorem_5,
    theorem_6,
    theorem_6_sharper,
)
from minigibbs.theory.estimates import TruncatedEstimator, TwoPointEstimator, estimate_distribution
from minigibbs.theory.transitions import (
    MOST_MATRIX,
    Transition,
    site_updates,
    sweep_gap,
    transition,
)

__all__ = [
    "MOST_MATRIX",
    "MOST_STATES",
    "Bounds",
    "Comparison",
    "Distribution",
    "Enumeration",
    "Propagation",
    "Transition",
    "TruncatedEstimator",
    "TwoPointEstimator",
    "estimate_distribution",
    "largest_deviation",
    "lemma_1",
    "lemma_2",
    "lemma_2_repaired",
    "lemma_2_sharper",
    "log_z_bounds",
    "poisson_gibbs_bound",
    "promise",
    "propagate",
    "site_updates",
    "sweep_gap",
    "systematic_promise",
    "systematic_slowdown",
    "theorem_1",
    "theorem_2",
    "theorem_2_repaired",
    "theorem_3",
    "theorem_4",
    "theorem_4_repaired",
    "theorem_5",
    "theorem_6",
    "theorem_6_sharper",
    "transition",
    "treewidth_bound",
]
