"""A hidden Potts chain with unknown coupling and means, and its exact posterior.

Labels x follow a Potts chain of two values with coupling b, whose partition function is
2 (e^b + 1)^(n - 1). Observations are normal around one of two means.
"""

import numpy as np
from scipy import stats

import minigibbs as mg

COUNT, SIGMA = 20, 1.2
PRIOR = {"b": (0.8, 0.5), "low": (-1.0, 0.7), "high": (1.0, 0.7)}  # mean and standard deviation


def observations():
    rng = np.random.default_rng(7)
    labels = np.zeros(COUNT, dtype=int)
    for k in range(1, COUNT):
        labels[k] = labels[k - 1] if rng.random() < 0.8 else 1 - labels[k - 1]
    return rng.normal(np.where(labels, 0.9, -0.9), SIGMA)


Y = observations()


def graph():
    return mg.FactorGraph(
        [2] * COUNT,
        [
            mg.Potts(range(COUNT - 1), range(1, COUNT), 0.0, name="b", tied=0),
            mg.Unary(range(COUNT), np.zeros((COUNT, 2)), name="h"),
        ],
    )


def log_partition(b, log, exp):
    return np.log(2.0) + (COUNT - 1) * log(exp(b) + 1.0)


def exact():
    """Return posterior means of b, low and high, and P(x_k = 1), by integration on a grid."""
    axes = [np.linspace(m - 4 * s, m + 4 * s, 41) for m, s in PRIOR.values()]
    b, low, high = np.meshgrid(*axes, indexing="ij")
    log = sum(
        stats.norm.logpdf(value, *PRIOR[name])
        for name, value in zip(PRIOR, (b, low, high), strict=True)
    )
    field = [
        np.stack([stats.norm.logpdf(y, low, SIGMA), stats.norm.logpdf(y, high, SIGMA)]) for y in Y
    ]
    forward, backward = [field[0]], [np.zeros_like(field[0])]
    for one in field[1:]:
        forward.append(one + _spread(forward[-1], b))
    for one in field[:0:-1]:
        backward.insert(0, _spread(backward[0] + one, b))
    evidence = np.logaddexp(*forward[-1])
    log = log + evidence - log_partition(b, np.log, np.exp)
    law = np.exp(log - log.max())
    law /= law.sum()
    means = {name: (law * v).sum() for name, v in zip(PRIOR, (b, low, high), strict=True)}
    ones = [np.exp(f[1] + k[1] - evidence) for f, k in zip(forward, backward, strict=True)]
    return means, np.array([(law * one).sum() for one in ones])


def _spread(message, b):
    """Return the message to the next variable: the sum over a neighbor's value."""
    zero, one = message
    return np.stack([np.logaddexp(zero + b, one), np.logaddexp(zero, one + b)])
