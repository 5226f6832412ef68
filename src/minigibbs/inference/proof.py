"""Proofs that a state is optimal: by elimination, or by toulbar2's branch and bound."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import TooLargeError
from minigibbs.exact.costs import cost_functions
from minigibbs.exact.elimination import EliminationTree
from minigibbs.exact.queries import best_state
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.maximum import Maximum
from minigibbs.system.caller import warn
from minigibbs.system.watch import StopError, Watch

PROVEN = "proven"
_SLOWER = 20.0  # time of max-product, relative to sum-product
SHARE = 0.5  # share of the time for a proof by elimination that was asked for
_PART_SECONDS = 2e-6  # per variable and factor, until a search for orders checks the clock
_DIGITS = 9  # decimals of costs in toulbar2
_TOP = 2.0**52  # largest cost in units of the last digit
_GAP = 1e-5  # smaller relative improvements of the cost are not searched


def proven_by_elimination(graph: FactorGraph, seconds: float) -> Maximum | None:
    """Return the best state of a graph of low treewidth; None if it takes longer than `seconds`."""
    parts = len(graph) + sum(map(len, graph.factors))
    if parts * _PART_SECONDS > seconds:
        return None
    with Watch() as call:
        try:
            with Watch(seconds):
                if _SLOWER * EliminationTree.of(graph).seconds > seconds:
                    return None
                state, top = best_state(graph)
        except TooLargeError:
            return None
        except StopError:  # of the inner watch, unless the whole call must end
            if call.signal:
                raise
            return None
    least = 0.0 - top
    return Maximum(
        domains=graph.domains,
        state=state,
        energy=least,
        seconds=call.spent,
        rounds=0,
        chains=0,
        reached=0,
        ended=PROVEN,
        method="elimination",
        reason="its treewidth is low",
        bound=least,
    )


def proven_by_search(graph: FactorGraph, found: Maximum, limit: float, clock: Watch) -> Maximum:
    """Return the same state or a better one, with the bound that toulbar2 proves in the time."""
    if find_spec("pytoulbar2") is None:
        warn(
            "there is no proof: the treewidth of this graph is too large for elimination, and "
            "pytoulbar2 is not installed; pip install 'minigibbs[toulbar2]'"
        )
        return found
    constant, costs = cost_functions(graph)
    best, lower = _solved(graph, costs, constant + found.energy, max(limit, 1.0))
    bound = lower - constant
    maximum = replace(found, bound=min(bound, found.energy))
    if best is not None and graph.energy(best) < found.energy:
        energy = float(graph.energy(best))
        maximum = replace(found, state=best, energy=energy, reached=0, bound=min(bound, energy))
    ended = PROVEN if maximum.proven else "time"
    return replace(maximum, ended=ended, seconds=clock.spent)


def _solved(
    graph: FactorGraph,
    costs: list[tuple[tuple[int, ...], NDArray[np.float64]]],
    known: float,
    limit: float,
) -> tuple[NDArray[Any] | None, float]:
    """Return a state with a cost below the known one, or None, and a lower bound on all costs.

    Costs are rounded to decimals. The bound allows for that.
    """
    from pytoulbar2 import CFN

    top = known + _GAP * max(1.0, abs(known))
    digits = min(_DIGITS, int(math.log10(_TOP / max(top, 1.0))))
    problem = CFN(ubinit=top, resolution=digits, verbose=-1)
    for variable in range(len(graph)):
        problem.AddVariable(f"x{variable}", range(int(graph.sizes[variable])))
    for scope, table in costs:
        flat = np.where(np.isfinite(table), table, 2 * top + 1).ravel().tolist()
        problem.AddFunction(list(scope), flat)
    rounding = 0.5 * 10.0**-digits * (len(costs) + 1)
    solution = problem.Solve(timeLimit=max(int(limit), 1))
    lower = min(float(problem.GetDDualBound()), known) - rounding
    if solution is None:  # time was up: a finished search finds the known state, or a better one
        return None, lower
    return np.array(solution[0], dtype=graph.state_type), lower
