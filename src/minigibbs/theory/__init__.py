"""Exact answers: enumeration and variable elimination, transition matrices, the paper's bounds.

>>> import minigibbs as mg
>>> chain = mg.FactorGraph([2] * 50, [mg.Ising(range(49), range(1, 50), 0.5)])
>>> round(mg.theory.log_partition(chain), 4)
40.543
"""

from minigibbs.exact.bounds import Bounds, log_z_bounds
from minigibbs.exact.elimination import (
    exact_draws,
    exact_marginals,
    log_partition,
    treewidth_bound,
)
from minigibbs.exact.enumeration import MOST_STATES, Enumeration, exact_distribution
from minigibbs.exact.laws import Law
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
from minigibbs.theory.estimates import TruncatedEstimator, TwoPointEstimator, estimate_law
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
    "Enumeration",
    "Law",
    "Transition",
    "TruncatedEstimator",
    "TwoPointEstimator",
    "estimate_law",
    "exact_distribution",
    "exact_draws",
    "exact_marginals",
    "largest_deviation",
    "lemma_1",
    "lemma_2",
    "lemma_2_repaired",
    "lemma_2_sharper",
    "log_partition",
    "log_z_bounds",
    "poisson_gibbs_bound",
    "promise",
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
