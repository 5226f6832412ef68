"""A hidden Potts chain with unknown coupling and means, and its exact posterior.

Labels x follow a Potts chain of three values with coupling b, whose partition function is
3 (e^b + 2)^(n - 1). Observations are normal around one of three means, of which the middle is 0.
"""

import numpy as np
from scipy import stats

import minigibbs as mg

COUNT, LABELS, SIGMA = 20, 3, 0.9
PRIOR = {"b": (1.0, 0.5), "low": (-1.5, 0.7), "high": (1.5, 0.7)}  # mean and standard deviation


def observations():
    rng = np.random.default_rng(7)
    labels = np.zeros(COUNT, dtype=int)
    for k in range(1, COUNT):
        labels[k] = labels[k - 1] if rng.random() < 0.7 else rng.integers(LABELS)
    return rng.normal(np.array([-1.4, 0.0, 1.4])[labels], SIGMA)


Y = observations()


def graph():
    return mg.FactorGraph(
        [LABELS] * COUNT,
        [
            mg.Potts(range(COUNT - 1), range(1, COUNT), 0.0, name="b", tied=0),
            mg.Unary(range(COUNT), np.zeros((COUNT, LABELS)), name="h"),
        ],
    )


def log_partition(b, log, exp):
    return np.log(LABELS) + (COUNT - 1) * log(exp(b) + LABELS - 1.0)


def exact():
    """Return posterior means of b, low and high, and of all labels, by integration on a grid."""
    axes = [np.linspace(m - 4 * s, m + 4 * s, 41) for m, s in PRIOR.values()]
    b, low, high = np.meshgrid(*axes, indexing="ij")
    log = sum(
        stats.norm.logpdf(value, *PRIOR[name])
        for name, value in zip(PRIOR, (b, low, high), strict=True)
    )
    field = [
        np.stack([stats.norm.logpdf(y, mean, SIGMA) for mean in (low, 0 * low, high)]) for y in Y
    ]
    forward, backward = [field[0]], [np.zeros_like(field[0])]
    for one in field[1:]:
        forward.append(one + _spread(forward[-1], b))
    for one in field[:0:-1]:
        backward.insert(0, _spread(backward[0] + one, b))
    evidence = np.logaddexp.reduce(forward[-1])
    log = log + evidence - log_partition(b, np.log, np.exp)
    distribution = np.exp(log - log.max())
    distribution /= distribution.sum()
    means = {name: (distribution * v).sum() for name, v in zip(PRIOR, (b, low, high), strict=True)}
    labels = []
    for f, k in zip(forward, backward, strict=True):
        shares = (distribution * np.exp(f + k - evidence)).sum(axis=(1, 2, 3))
        labels.append(shares @ np.arange(LABELS))
    return means, np.array(labels)


def _spread(message, b):
    """Return the message to the next variable: the sum over a neighbor's value."""
    return np.stack(
        [
            np.logaddexp.reduce([one + b * (value == other) for other, one in enumerate(message)])
            for value in range(LABELS)
        ]
    )
