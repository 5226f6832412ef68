"""Warnings about parameters that data do not determine, or send to infinity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.data import Data
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.parameters import Frame
from minigibbs.learning.penalty import Penalty

_NAMED = 3  # most parameters that a warning names
_SEPARATED = 1e-9  # in units of a range: a moment this near to its end is at the end
_LARGE = 10.0  # share of a factor's energy that is implausible without a penalty
_PINNED = 0.01  # in units of a range: a hidden variable that rarely has another value
UNFINISHED = 0.5  # distance from the optimum beyond noise, in standard errors
FAR, NEARER = 10.0, 0.5  # such a distance that is not halved by further steps: chains do not mix
_UNTOLD = 4.0  # standard error of such a share at which data are uninformative


def require_parameters(graph: FactorGraph) -> None:
    """Raise an error unless the graph has something to learn."""
    frame = graph.frame
    if not frame.size:
        raise LearnError(
            "the graph has no parameters: give factors a name, as in "
            'mg.Potts(i, j, 0.0, name="J"), to learn their parameters'
        )
    if frame.fixed.all():
        raise LearnError(
            f"all parameters are fixed ({', '.join(map(repr, frame.parameters))}): there is "
            "nothing to learn"
        )


def require_possible(graph: FactorGraph, data: Data) -> None:
    """Raise an error if a hard constraint forbids the observed values of a row.

    A row that is forbidden only through its missing values is not found.
    """
    model = graph.packed
    for number in graph.hard.tolist():
        factor = model.factors[number]
        slots = model.slots[factor["scope_start"] : factor["scope_end"]]
        own = data.rows[:, slots["variable"]].astype(np.int64)
        places = factor["table_start"] + (own * slots["key"]).sum(axis=1)
        forbidden = np.isneginf(model.table[places]) & (data.weight > 0)
        if data.seen is not None:
            forbidden &= (data.seen[:, slots["variable"]] != 0).all(axis=1)
        if forbidden.any():
            row = int(forbidden.argmax())
            raise LearnError(
                f"data, row {row}: it has probability 0 in this graph, which {graph.where(number)} "
                "excludes"
            )


def unspoken(graph: FactorGraph, data: Data) -> list[str]:
    """Warn about parameters without factors, or whose factors touch no observed variable."""
    frame, found = graph.frame, []
    low, high = frame.ranges
    idle = ~frame.fixed & ~(high > low)
    if idle.any():
        found.append(
            f"no factor depends on {_names(frame, idle)}, which keeps its value; leave it out, or "
            "fix it"
        )
    if data.seen is not None:
        seen = np.asarray(data.seen.any(axis=0))
        unseen = ~frame.fixed & ~idle & ~_reached(graph, seen)
        if unseen.any():
            found.append(
                f"the data do not determine {_names(frame, unseen)}: no variable that its factors "
                "are connected to was observed"
            )
    return found


def _reached(graph: FactorGraph, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[parameter] whether one of its factors is connected to an observed variable."""
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
    """Warn about parameters whose statistic has its largest or smallest value in all rows."""
    low, high = frame.ranges
    span = high - low
    free = ~frame.fixed & (span > 0) & (penalty.l1 + penalty.l2 == 0)
    ends = {
        "infinity": free & (moments >= high - _SEPARATED * span),
        "minus infinity": free & (moments <= low + _SEPARATED * span),
    }
    return [
        f"the maximum-likelihood value of {_names(frame, which)} is {where}: its statistic is at "
        f"its {'largest' if where == 'infinity' else 'least'} in every row; add l2=, a prior "
        "or data"
        for where, which in ends.items()
        if which.any()
    ]


def pinned(
    graph: FactorGraph, data: Data, moments: NDArray[np.float64], penalty: Penalty
) -> list[str]:
    """Warn about fields of hidden variables that have one value in nearly all rows.

    The likelihood increases as such a field goes to infinity. Noisy steps end long before that, so
    the size of the field is no evidence.
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
    """Warn about values that are implausibly large, or whose errors are."""
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


def late(steps: int) -> list[str]:
    """Warn that time was up before the distance from the optimum was known."""
    return [
        f"the steps ended too early: time was up after {steps:,} of them, before it was known how "
        "far parameters are from where they would end; give more time"
    ]


def unfinished(away: float, whole: bool, steps: int, in_vain: bool = False) -> list[str]:
    """Warn about steps that ended before the parameters converged.

    `away` is the distance from the optimum in standard errors, minus noise: of parameters if
    `whole`, of moments if not. It is infinite if an objective without noise was still rising. Steps
    `in_vain` came hardly nearer to the optimum.
    """
    if away <= UNFINISHED:
        return []
    if in_vain:
        return [
            f"{steps:,} steps did not bring the parameters near to where they would end: the "
            "chains of the model probably do not move between its modes; use "
            "sampler=mg.Tempering(), or reweight=True, which is faster and less certain"
        ]
    if np.isinf(away):
        text = f"the objective was still rising after {steps:,} of them; use more steps"
    elif whole:
        text = (
            f"parameters are about {away:.2g} standard errors from where they would end, by the "
            "gap between the moments of data and model; use more steps"
        )
    else:
        text = (
            f"a moment of the model is at least {away:.2g} standard errors from that of the data; "
            "use more steps"
        )
    return [f"the steps ended too early: {text}"]


def _names(frame: Frame, which: NDArray[np.bool_]) -> str:
    """Return some parameters by name."""
    numbers = np.flatnonzero(which)
    shown = ", ".join(frame.where(int(number)) for number in numbers[:_NAMED])
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    return f"parameter {shown}{more}"
