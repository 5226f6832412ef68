"""The minibatch of factors at a variable in the proposals of MGPMH and DoubleMIN-Gibbs."""

from __future__ import annotations

import math

from minigibbs.kernels.alias import draw_alias
from minigibbs.kernels.energy import add_general
from minigibbs.kernels.jit import kernel
from minigibbs.kernels.layout import DRAWS
from minigibbs.kernels.poisson import poisson


@kernel
def _add_scaled(model, x, i, place, step, weights):
    """Add step * phi / M for each value of `i`, up to a common constant."""
    if place < model.rows[i].pair_end:
        weights[x[model.target[place]]] += math.copysign(step, model.weight[place])
    else:
        span = model.factors[model.target[place]].span
        add_general(model, x, i, place, step / span, weights)


@kernel
def load_minibatch(vector, step, model, chain, i):
    """Compute eps_u = sum over the minibatch of s * (L / (lambda * M)) * phi (Algorithm 4).

    `step` is L / lambda. Factors are not shifted: a shift adds the same constant to every value,
    which affects neither the proposal nor the acceptance.
    """
    row = vector.rows[i]
    for value in range(model.rows[i].domain):
        chain.weights[value] = 0.0
    for k in range(row.strong_start, row.strong_end):
        strong = vector.strong[k]
        count = poisson(strong.rate, strong.none, chain.stream)
        if count > 0:
            _add_scaled(model, chain.x, i, strong.place, count * step, chain.weights)
    draws = poisson(row.weak_total, row.none, chain.stream)
    for _ in range(draws):
        place = draw_alias(vector.weak, row.weak_start, row.weak_end, chain.stream)
        _add_scaled(model, chain.x, i, place, step, chain.weights)
    chain.tally[DRAWS] += row.strong_end - row.strong_start + draws
