"""Small graphs with parameters of every kind, and their exact values by enumeration."""

import itertools

import numpy as np

import minigibbs as mg


def mixed(**options):
    """Return a graph with ties, scales, fixed entries, tables, rows and rules."""
    table = 0.5 * np.random.default_rng(5).normal(size=(2, 3))
    factors = [
        mg.Ising([0], [1], 0.3, name="c"),
        mg.Potts([0, 2, 1], [2, 3, 3], [0.2, 0.5], name="J", tied=[0, 1, 0], scale=[1, 2, 0.5]),
        mg.Table([[0, 2], [1, 3]], table, weight=[1.0, -0.5], name="T"),
        mg.Unary([2, 3], [0.0, 0.4, -0.2], name="h", fixed=[True, False, False]),
        mg.Logical("imply", [[0, 1]], 0.7, name="rule"),
        mg.Logical("and", [[2, 3], [3, 2]], [0.1, 0.4], values=[[2, 1], [0, 0]], name="and"),
        mg.Unary([0], [0.0, 0.3]),
    ]
    return mg.FactorGraph([2, 2, 3, 3], factors, **options)


def all_states(graph):
    return np.array(list(itertools.product(*(range(size) for size in graph.sizes))))


def log_likelihood(graph, values, rows):
    """Return the mean log-likelihood of rows, with -1 for missing values, by enumeration."""
    states = all_states(graph)
    energy = graph.with_flat(values).log_potential(states)
    given = (graph.evidence < 0) | (states == graph.evidence)
    weights = np.where(given.all(axis=1), np.exp(energy), 0.0)
    total = 0.0
    for row in rows:
        agree = ((row < 0) | (states == row)).all(axis=1)
        total += np.log(weights[agree].sum()) - np.log(weights.sum())
    return total / len(rows)


def slope(function, values, step=1e-5):
    """Return the gradient of a function by central differences."""
    units = step * np.eye(len(values))
    return np.array([(function(values + u) - function(values - u)) / (2 * step) for u in units])


def some_rows(graph, count=60, missing=0.0, seed=3):
    draws = np.random.default_rng(seed)
    rows = (draws.random((count, len(graph))) * graph.sizes).astype(int)
    rows[draws.random(rows.shape) < missing] = -1
    return rows
