"""Exact answers: enumeration and variable elimination, transition matrices, the paper's bounds."""

from minigibbs.theory.elimination import exact_marginals, log_partition, treewidth_bound
from minigibbs.theory.enumeration import MOST_STATES, Enumeration, exact_distribution
from minigibbs.theory.laws import Law, TruncatedEstimator, estimate_law
from minigibbs.theory.ordering import MOST_ENTRIES
from minigibbs.theory.transitions import MOST_MATRIX, Transition, transition

__all__ = [
    "MOST_ENTRIES",
    "MOST_MATRIX",
    "MOST_STATES",
    "Enumeration",
    "Law",
    "Transition",
    "TruncatedEstimator",
    "estimate_law",
    "exact_distribution",
    "exact_marginals",
    "log_partition",
    "transition",
    "treewidth_bound",
]
