"""The size of a graph: degrees and energies of the paper, and their description for reports."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.checks import some_of
from minigibbs.graph.factors.base import FREE

if TYPE_CHECKING:
    from minigibbs.graph.factors.stencil import Stencil
    from minigibbs.graph.graph import FactorGraph

_QUICK = 20_000_000  # largest cost of statistics in a description


@dataclass(frozen=True)
class Stats:
    """The size of a graph in the paper's terms (Definition 1), after its evidence: `graph.stats`.

    Attributes
    ----------
    variables : int
        Number of free variables.
    factors : int
        Number of factors that vary.
    max_degree : int
        Delta, the largest number of factors at a variable.
    local_energy : float
        L, the largest sum over the factors at a variable of their range M (maximum minus minimum).
    total_energy : float
        Psi, the sum of the ranges of all factors.
    max_domain : int
        D, the largest number of values of a variable.

    Examples
    --------
    >>> import minigibbs as mg
    >>> ring = mg.FactorGraph([3, 3, 3], [mg.Potts([0, 1, 2], [1, 2, 0], 0.5)])
    >>> ring.stats
    Stats(variables=3, factors=3, max_degree=2, local_energy=1.0, total_energy=1.5, max_domain=3)
    """

    variables: int
    factors: int
    max_degree: int
    local_energy: float
    total_energy: float
    max_domain: int


def _lone_stencil(graph: FactorGraph) -> Stencil | None:
    """Return the stencil of a graph without other factors and evidence."""
    return graph.lattice if len(graph.factors) == 1 and graph.free == len(graph) else None


def local_energies(graph: FactorGraph) -> NDArray[np.float64]:
    """Compute `graph.local_energies`."""
    from minigibbs.graph.packing import energy_at

    local = energy_at(graph.rest.packed)
    for group in graph.implicits:
        local += group.energy_per_weight * group.local_weights()
    for stencil in graph.stencils:
        local += stencil.local(graph.sizes, graph.evidence)[1]
    local[graph.evidence != FREE] = 0.0
    return local


def compute_stats(graph: FactorGraph) -> Stats:
    """Compute `graph.stats`."""
    from minigibbs.graph.packing import factor_spans

    lone = _lone_stencil(graph)
    if lone is not None:
        degrees, local = lone.local(graph.sizes, graph.evidence)
        factors, total = lone.totals(graph.sizes, graph.evidence)
        return Stats(
            variables=len(graph),
            factors=factors,
            max_degree=int(some_of(degrees).max()),
            local_energy=float(some_of(local).max()),
            total_energy=total,
            max_domain=int(some_of(graph.sizes).max()),
        )
    spans = factor_spans(graph.rest.packed, graph.evidence)
    factors, total = int(np.count_nonzero(spans)), float(spans.sum())
    del spans
    rows, free = graph.rest.packed.rows, graph.evidence == FREE
    degrees = rows["end"] - rows["start"]
    for stencil in graph.stencils:
        degrees = np.where(free, degrees + stencil.local(graph.sizes, graph.evidence)[0], 0)
        own_factors, own_total = stencil.totals(graph.sizes, graph.evidence)
        factors, total = factors + own_factors, total + own_total
    for group in graph.implicits:  # includes pairs of clamped variables
        own = group.degrees()
        degrees = np.where(free, degrees + own, 0)
        factors += int(own.sum()) // 2
        total += 0.5 * group.energy_per_weight * float(group.local_weights().sum())
    return Stats(
        variables=int(np.count_nonzero(free)),
        factors=factors,
        max_degree=int(degrees.max()),
        local_energy=float(graph.local_energies.max()),
        total_energy=float(total),
        max_domain=int(some_of(graph.sizes).max()),
    )


def influence(graph: FactorGraph) -> float:
    """Compute `graph.influence`."""
    from minigibbs.graph.packing import influence_at

    lone = _lone_stencil(graph)
    if lone is not None:
        return float(some_of(lone.local(graph.sizes, graph.evidence)[1]).max()) / 2
    pairs = not (graph.implicits or graph.stencils or len(graph.packed.factors))
    found = graph.local_energies / 2 if pairs else influence_at(graph.rest.packed)
    for group in graph.implicits:
        found += group.energy_per_weight * group.local_weights() / 2
    for stencil in graph.stencils:
        found += stencil.local(graph.sizes, graph.evidence)[1] / 2
    return float(found[graph.evidence == FREE].max(initial=0.0))


def estimated_rounding(graph: FactorGraph) -> float:
    """Compute `graph.rounding_error`."""
    from minigibbs.graph.rounding import rounding_error

    if graph.only_stencils:  # each stencil counts as a single factor
        return 0.0
    quick = (group for group in graph.implicits if group.counting <= _QUICK)
    weights = sum(g.energy_per_weight * float(g.local_weights().sum()) / 2 for g in quick)
    weights += sum(stencil.strength for stencil in graph.stencils)
    return rounding_error(graph.rest.packed, weights)


def description(graph: FactorGraph) -> dict[str, Any]:
    """Return `graph.describe()`."""
    kinds: dict[str, int] = {}
    for group in graph.factors:
        kinds[group.kind] = kinds.get(group.kind, 0) + len(group)
    slow = any(group.counting > _QUICK for group in graph.implicits)
    if slow and "stats" not in vars(graph):  # nor cached
        stats: dict[str, Any] = dict.fromkeys(entry.name for entry in fields(Stats))
    else:
        stats = asdict(graph.stats) | {"influence": graph.influence}
        stats |= {key: None for key, value in stats.items() if value == math.inf}
    clamped = len(graph) - graph.free
    shapes = (getattr(group, "shape", None) for group in (*graph.implicits, *graph.stencils))
    shape = next((shape for shape in shapes if shape is not None), None)  # of a lattice
    return {
        **stats,
        "clamped": clamped,
        "kinds": kinds,
        "implicit": bool(graph.implicits),
        "zeros": len(graph.hard),
        "rounding_error": graph.rounding_error,
        "shape": None if shape is None else list(shape),
        **_parameter_counts(graph),
    }


def _parameter_counts(graph: FactorGraph) -> dict[str, Any]:
    """Return the number of parameters of each name, if there are any."""
    if not any(group.tie for group in graph.factors):
        return {}
    return {"parameters": {one.name: one.size for one in graph.frame}}


def html_table(graph: FactorGraph) -> str:
    """Return the table that notebooks show, without slow statistics."""
    from html import escape

    known = graph.describe()
    rows = [("variables", f"{len(graph):,}")]
    rows += [(f"{kind} factors", f"{count:,}") for kind, count in known["kinds"].items()]
    if known["clamped"]:
        rows.append(("clamped", f"{known['clamped']:,}"))
    for key, label in (("max_degree", "Delta"), ("local_energy", "L"), ("max_domain", "D")):
        if known[key] is not None:
            rows.append((label, f"{known[key]:,.6g}"))
    lines = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table><caption>FactorGraph</caption>{''.join(lines)}</table>"
