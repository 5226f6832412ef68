"""What operations cost, by kind: the one table that the split and `explain` go by.

Samplers say how many operations of each kind an update takes (`Sampler.operations`). The default
sampler splits a variable's factors by the costs below. They are shipped rather than measured on the
spot, so that a seed gives the same chain on every machine. `explain` predicts times on the machine
at hand: it measures costs there, and these decide where measurements cannot tell kinds apart.
"""

from __future__ import annotations

Costs = dict[str, float]  # nanoseconds by kind of operation

# Nanoseconds on one machine; only their ratios matter. To change them changes the split, and with
# it the draws.
COSTS: Costs = {
    "update": 15.0,  # an update, without its factors
    "choice": 20.0,  # a value chosen
    "exp": 8.0,  # an exponential for that, of the first few
    "exps": 7.0,  # and of the rest
    "value": 1.0,  # the weight of one value, where all values have theirs set
    "read": 1.8,  # a pair looked at
    "textbook": 2.2,  # a pair looked at for one value
    "swap": 2.5,  # a pair looked at for two values
    "odds": 1.1,  # an exactly evaluated pair of a spin
    "heavy": 2.0,  # the same, of a variable with a small domain
    "touch": 4.0,  # the same where domains are large, or of an implicit group
    "general": 12.0,  # a table or formula looked at, and on top:
    "slot": 3.0,  # each variable of its scope
    "cell": 1.0,  # each value of the variable at hand
    "tail": 8.0,  # having minibatched factors
    "draw": 30.0,  # a factor drawn by alias table
    "strong": 17.0,  # a Poisson variate of its own
    "accept": 60.0,  # a proposal decided upon
    "member": 11.0,  # a member of a subset
    "write": 5.0,  # a neighbor's field brought up to date
    "far": 40.0,  # a cache line that comes from main memory
}
LANE_DRAW = 48.0  # a draw of vectorized chains, which all wait for the one that draws
