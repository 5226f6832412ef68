"""Plain-Python oracles: slow, clearly correct, and readable next to the paper."""

import itertools
import math

import numpy as np


def factor_functions(graph):
    """Yield every factor as (scope, function of the scope's values), as the user defined it."""
    for group in graph.stored().factors:
        arrays = group.arrays()
        for k, scope in enumerate(group.scope.tolist()):
            yield scope, _function(group, arrays, k)


def _weight(arrays, k, name="weight"):
    """Return the weight of factor k: its own, or the parameter that it is tied to, scaled."""
    number = arrays["tied"][k] if "tied" in arrays else k
    return float(arrays[name][number]) * float(arrays["scale"][k] if "scale" in arrays else 1.0)


def _function(group, arrays, k):
    entries = arrays["tied"][k] if "tied" in arrays and "learn" not in arrays else k
    if group.kind == "unary":
        rows = np.asarray(arrays["log_potential"])
        return lambda v: float(rows[v] if rows.ndim == 1 else rows[entries][v])
    if group.kind == "potts":
        return lambda a, b: _weight(arrays, k) if a == b else 0.0
    if group.kind == "ising":
        return lambda a, b: _weight(arrays, k, "coupling") * (2 * a - 1) * (2 * b - 1)
    if group.kind == "table":
        table = arrays["log_potential"] if group.shared else arrays["log_potential"][entries]
        weight = _weight(arrays, k) if "learn" in arrays else float(arrays["weight"][k])
        return lambda *values: float(weight * table[values])
    if group.kind == "logical":
        weight = _weight(arrays, k)
        true = arrays["values"][k] if "values" in arrays else 1 - arrays["negated"][k].astype(int)

        def formula(*values):
            literals = [v == key for v, key in zip(values, true, strict=True)]
            holds = {
                "and": all(literals),
                "or": any(literals),
                "equal": all(literals) or not any(literals),
                "imply": literals[-1] or not all(literals[:-1]),
                "istrue": literals[0],
            }
            return weight if holds[arrays["op"]] else 0.0

        return formula
    raise AssertionError(group.kind)


def states(graph):
    """Return all states that agree with the evidence."""
    ranges = [
        range(size) if fixed < 0 else [int(fixed)]
        for size, fixed in zip(graph.sizes.tolist(), graph.evidence.tolist(), strict=True)
    ]
    return list(itertools.product(*ranges))


def log_potential(graph, x):
    return sum(f(*(x[v] for v in scope)) for scope, f in factor_functions(graph))


def distribution(graph):
    """Return pi over `states(graph)`."""
    logs = np.array([log_potential(graph, x) for x in states(graph)])
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def marginals(graph):
    """Return the exact marginals [variable, value]."""
    result = np.zeros((len(graph), graph.sizes.max()))
    for x, p in zip(states(graph), distribution(graph), strict=True):
        for variable, value in enumerate(x):
            result[variable, value] += p
    return result


def conditional(graph, x, i):
    """Return rho of Algorithm 1, from the definition."""
    logs = []
    for u in range(graph.sizes[i]):
        y = list(x)
        y[i] = u
        logs.append(log_potential(graph, y))
    weights = np.exp(np.array(logs) - max(logs))
    return weights / weights.sum()


def spans(graph):
    """Return (scope of free variables, least value, M) of factors that vary under the evidence."""
    found = []
    for scope, f in factor_functions(graph):
        ranges = [
            range(graph.sizes[v]) if graph.evidence[v] < 0 else [int(graph.evidence[v])]
            for v in scope
        ]
        values = [f(*point) for point in itertools.product(*ranges)]
        if max(values) - min(values) > 0:
            free = [v for v in scope if graph.evidence[v] < 0]
            found.append((free, min(values), max(values) - min(values)))
    return found


def error(marginal, reference):
    """Return the mean l2 distance, the error measure of the paper."""
    rows = zip(marginal, reference, strict=True)
    return sum(math.dist(a, b) for a, b in rows) / len(marginal)
