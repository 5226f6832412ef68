"""Costs of operations, by kind: the table that the split and `explain` use.

Samplers return the number of operations of each kind per update (`Sampler.operations`). The default
sampler splits a variable's factors by the costs below. The costs are constants, not measured at run
time, so that a seed gives the same chain on every machine. `explain` predicts times on the current
machine: it measures costs there, and uses these where measurements cannot separate kinds.
"""

from __future__ import annotations

Costs = dict[str, float]  # nanoseconds by kind of operation

# Nanoseconds on one machine; only their ratios matter. Different costs change the split, and thus
# the draws.
COSTS: Costs = {
    "update": 15.0,  # an update, without its evaluations
    "choice": 20.0,  # a choice of a value
    "exp": 8.0,  # an exponential of the choice, of the first few
    "exps": 7.0,  # an exponential of the choice, of the others
    "value": 1.0,  # the weight of one value, if all values have weights
    "read": 1.8,  # evaluation of a pair
    "textbook": 2.2,  # evaluation of a pair for one value
    "swap": 2.5,  # evaluation of a pair for two values
    "odds": 1.1,  # a heavy pair of a spin
    "heavy": 2.0,  # a heavy pair of a variable with a small domain
    "touch": 4.0,  # a heavy pair where domains are large, or of an implicit group
    "general": 12.0,  # evaluation of a table or formula, and in addition:
    "slot": 3.0,  # each variable of its scope
    "cell": 1.0,  # each value of the updated variable
    "tail": 8.0,  # an update of a variable with a tail
    "draw": 30.0,  # a factor drawn by alias table
    "strong": 17.0,  # a Poisson variate of its own
    "accept": 60.0,  # acceptance or rejection of a proposal
    "member": 11.0,  # a member of a subset
    "write": 5.0,  # an update of a neighbor's field
    "far": 40.0,  # a cache line read from main memory
}
LANE_DRAW = 48.0  # a draw of vectorized chains, which all wait for the drawing one
