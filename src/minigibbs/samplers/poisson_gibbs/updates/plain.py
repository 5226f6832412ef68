"""Nothing to draw: the update is plain Gibbs's, with or without remembered fields."""

from __future__ import annotations

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.gibbs.fields import FieldData, field_workspace, rare_changes
from minigibbs.samplers.gibbs.sampler import GibbsData, gibbs_data, sum_unary, touched_workspace
from minigibbs.samplers.gibbs.spin_fields import (
    SpinFieldData,
    spin_field_data,
    spin_field_workspace,
    spin_fields_fit,
)
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import Layout, nothing_drawn


def fields_pay(graph: FactorGraph, split: Split) -> bool:
    """Whether nothing is drawn, and changes are so rare that remembered fields pay."""
    if split.lanes > 1 or not nothing_drawn(graph, split):
        return False
    return rare_changes(graph, FieldData(sum_unary(graph.packed))) is not None


def prepare_fields(graph: FactorGraph, split: Split) -> GibbsData | FieldData:
    """What plain Gibbs with remembered fields prepares."""
    return gibbs_data(graph, fields=True)


def spin_fields_pay(graph: FactorGraph, split: Split) -> bool:
    """Whether nothing is drawn, and all variables are spins with many neighbours."""
    return split.lanes == 1 and nothing_drawn(graph, split) and spin_fields_fit(graph)


def prepare_spin_fields(graph: FactorGraph, split: Split) -> SpinFieldData:
    """The unary factors."""
    return spin_field_data(graph, sum_unary(graph.packed))


def prepare(graph: FactorGraph, split: Split) -> GibbsData | FieldData:
    """What plain Gibbs without them prepares."""
    return gibbs_data(graph, fields=False)


FIELDS = Layout("fields", FieldData, fields_pay, prepare_fields, field_workspace)
SPIN_FIELDS = Layout(
    "spin-fields", SpinFieldData, spin_fields_pay, prepare_spin_fields, spin_field_workspace
)
GIBBS = Layout("gibbs", GibbsData, nothing_drawn, prepare, touched_workspace)
