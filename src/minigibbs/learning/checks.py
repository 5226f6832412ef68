"""What data cannot tell: parameters that no datum speaks of, or that it sends to infinity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.learning.penalty import Penalty

_NAMED = 3  # parameters that a warning names
_SEPARATED = 1e-9  # of a range: a moment that is so near its end is there
_LARGE = 10.0  # a share of a factor's energy that, without penalty, is no longer an answer
_PINNED = 0.01  # of a range: a hidden variable that is so seldom elsewhere
UNFINISHED = 0.5  # standard errors from the end, beyond noise
_UNTOLD = 4.0  # a standard error of such a share: the data say next to nothing


def require_parameters(graph: FactorGraph) -> None:
    """Raise unless the graph has something to learn."""
    frame = graph.frame
    if not frame.size:
        raise LearnError(
            "the graph has no parameters: give factors a name, as in "
            'mg.Potts(i, j, 0.0, name="J"), to learn their numbers'
        )
    if frame.fixed.all():
        raise LearnError(
            f"all parameters are fixed ({', '.join(map(repr, frame.parameters))}): there is "
            "nothing to learn"
        )


def unspoken(graph: FactorGraph, data: Data) -> list[str]:
    """Warn of parameters that no factor has, or whose factors touch nothing that was seen."""
    frame, found = graph.frame, []
    low, high = frame.ranges
    idle = ~frame.fixed & ~(high > low)
    if idle.any():
        found.append(
            f"no factor depends on {_names(frame, idle)}: it stays as it is; leave it out, or "
            "fix it"
        )
    if data.seen is not None:
        seen = np.asarray(data.seen.any(axis=0))
        unseen = ~frame.fixed & ~idle & ~_reached(graph, seen)
        if unseen.any():
            found.append(
                f"no datum speaks of {_names(frame, unseen)}: nothing that its factors are joined "
                "to was observed"
            )
    return found


def _reached(graph: FactorGraph, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[parameter] whether one of its factors is joined, through others, to something seen."""
    frame = graph.frame
    model, pairs = frame.structure, len(frame.structure.pair)
    arity = model.factors["scope_end"] - model.factors["scope_start"]
    factor = np.concatenate(
        [np.repeat(np.arange(pairs), 2), pairs + np.repeat(np.arange(len(arity)), arity)]
    )
    variable = np.concatenate([model.pair.ravel(), model.slots["variable"]])
    count = len(graph) + pairs + len(arity)
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    links = coo_matrix(
        (np.ones(len(factor)), (variable, len(graph) + factor)), shape=(count, count)
    )
    component = connected_components(links, directed=False)[1]
    lit = np.zeros(component.max() + 1, dtype=np.bool_)
    lit[component[: len(graph)][seen]] = True
    told = lit[component[len(graph) :]]
    reached = np.zeros(frame.size, dtype=np.bool_)
    ties = frame.ties
    reached[ties.pair[(ties.pair >= 0) & told[:pairs]]] = True
    general = np.flatnonzero((ties.factor >= 0) & told[pairs:])
    reached[ties.factor[general[~ties.entries[general]]]] = True
    tables = general[ties.entries[general]]
    sizes = frame.table_sizes(tables)
    for size in np.unique(sizes).tolist():
        starts = ties.factor[tables[sizes == size]]
        reached[(starts[:, None] + np.arange(size)).ravel()] = True
    return reached


def separated(frame: Frame, moments: NDArray[np.float64], penalty: Penalty) -> list[str]:
    """Warn of parameters whose statistic is as large, or as small, as it can be in all rows."""
    low, high = frame.ranges
    span = high - low
    free = ~frame.fixed & (span > 0) & (penalty.l1 + penalty.l2 == 0)
    ends = {
        "infinity": free & (moments >= high - _SEPARATED * span),
        "minus infinity": free & (moments <= low + _SEPARATED * span),
    }
    return [
        f"the data send {_names(frame, which)} to {where}: its statistic is at its "
        f"{'largest' if where == 'infinity' else 'least'} in every row; add l2=, a prior or data"
        for where, which in ends.items()
        if which.any()
    ]


def pinned(
    graph: FactorGraph, data: Data, moments: NDArray[np.float64], penalty: Penalty
) -> list[str]:
    """Warn of fields of hidden variables that have one value in nearly all rows.

    The likelihood rises as such a field goes to infinity. Noisy steps are still far from there
    when they end, so that the size of the field does not tell.
    """
    if data.seen is None:
        return []
    frame, hidden = graph.frame, ~np.asarray(data.seen.any(axis=0))
    factors, ties = frame.structure.factors, frame.ties
    alone = (factors["scope_end"] - factors["scope_start"] == 1) & (ties.factor >= 0)
    variable = frame.structure.slots["variable"][factors["scope_start"]]
    own = np.flatnonzero(alone & hidden[variable])
    fields = np.zeros(frame.size, dtype=np.bool_)
    fields[ties.factor[own[~ties.entries[own]]]] = True
    tables = own[ties.entries[own]]
    sizes = frame.table_sizes(tables)
    for size in np.unique(sizes).tolist():
        starts = ties.factor[tables[sizes == size]]
        fields[(starts[:, None] + np.arange(size)).ravel()] = True
    low, high = frame.ranges
    span = high - low
    free = fields & ~frame.fixed & (span > 0) & (penalty.l1 + penalty.l2 == 0)
    near = _PINNED * span
    stuck = free & ((moments >= high - near) | (moments <= low + near))
    if not stuck.any():
        return []
    return [
        f"{_names(frame, stuck)} may run to infinity: a hidden variable has one value in nearly "
        "all rows; add l2= or a prior, or use fewer hidden variables"
    ]


def grown(
    frame: Frame,
    values: NDArray[np.float64],
    deviations: NDArray[np.float64] | None,
    penalty: Penalty,
) -> list[str]:
    """Warn of values that have grown beyond what data can tell, or that they hardly tell."""
    free, scale = ~frame.fixed & (penalty.l1 + penalty.l2 == 0), frame.scales
    size = np.abs(values, out=np.zeros_like(values), where=np.isfinite(values))
    large = free & (size * scale > _LARGE)
    if deviations is not None:
        told = np.isfinite(deviations)
        large |= free & told & (np.where(told, deviations, 0.0) * scale > _UNTOLD)
    if not large.any():
        return []
    return [
        f"{_names(frame, large)} may have no finite best value: it has grown large, or its error "
        "has; the data may separate; add l2=, a prior or data"
    ]


def unfinished(away: float) -> list[str]:
    """Warn of steps that ended before the parameters did.

    `away` counts standard errors from the end, noise taken off.
    """
    if away <= UNFINISHED:
        return []
    return [
        f"the steps ended too early: parameters are about {away:.2g} standard errors from where "
        "they would end, by the gap between the moments of data and model; use more steps"
    ]


def _names(frame: Frame, which: NDArray[np.bool_]) -> str:
    """Some parameters by name."""
    numbers = np.flatnonzero(which)
    shown = ", ".join(frame.where(int(number)) for number in numbers[:_NAMED])
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    return f"parameter {shown}{more}"
