"""Networks and models from which test tables are drawn."""

import numpy as np

from minigibbs.formats.networks import Conditional

PARENTS = ((), (), (0, 1), (2,), (2,), (3, 4), (), (6,), (6, 7), (5, 8))


def network(seed=3, values=3):
    """Return the conditional tables of a network of 10 columns, and its edges [parent, child]."""
    rng = np.random.default_rng(seed)
    edge = np.zeros((len(PARENTS),) * 2, dtype=bool)
    tables = []
    for child, parents in enumerate(PARENTS):
        edge[list(parents), child] = True
        table = rng.dirichlet([0.4] * values, size=(values,) * len(parents))
        tables.append(Conditional(child, parents, 0.97 * table + 0.03 / values))
    return tables, edge


def draw(tables, rows, seed):
    """Return [row, variable] states drawn from a network, parents first."""
    rng, done, left = np.random.default_rng(seed), {}, list(tables)
    while left:
        one = next(c for c in left if all(p in done for p in c.parents))
        left.remove(one)
        table = one.table / one.table.sum(axis=-1, keepdims=True)
        each = table[tuple(done[p] for p in one.parents)]
        each = np.broadcast_to(each, (rows, table.shape[-1]))
        drawn = (rng.random((rows, 1)) > np.cumsum(each, axis=1)).sum(axis=1)
        done[one.child] = np.minimum(drawn, table.shape[-1] - 1)
    return np.stack([done[k] for k in range(len(tables))], axis=1)


def edges_of(structure):
    """Return the edges of a structure as [parent, child]."""
    edge = np.zeros((len(structure.graph),) * 2, dtype=bool)
    index = structure.graph.domains.index
    for one in structure.edges:
        edge[index(one.source), index(one.target)] = True
    return edge


def hidden(rows, share, seed):
    """Return the rows with a share of the cells replaced by None."""
    gone = np.random.default_rng(seed).random(rows.shape) < share
    return np.where(gone, None, rows.astype(object))


def planted(columns, rows, degree, coupling, seed, values=2, sweeps=60):
    """Return [row, column] draws from a random sparse Potts model, and its edges (low, high)."""
    rng = np.random.default_rng(seed)
    i, j = np.triu_indices(columns, 1)
    chosen = rng.choice(len(i), columns * degree // 2, replace=False)
    weight = np.zeros((columns, columns))
    weight[i[chosen], j[chosen]] = rng.choice([-coupling, coupling], len(chosen))
    weight += weight.T
    x = rng.integers(0, values, (columns, rows))
    for _ in range(sweeps):
        for k in range(columns):
            near = np.flatnonzero(weight[k])
            same = x[near][:, None] == np.arange(values)[None, :, None]
            field = np.tensordot(2 * weight[k, near], same, axes=1)  # [value, row]
            noise = rng.gumbel(size=field.shape)
            x[k] = (field + noise).argmax(axis=0)
    return x.T, {(int(a), int(b)) for a, b in zip(i[chosen], j[chosen], strict=True)}
