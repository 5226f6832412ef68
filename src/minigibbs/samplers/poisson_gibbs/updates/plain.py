"""Variants without draws: the update is plain Gibbs's, with or without cached fields."""

from __future__ import annotations

from minigibbs.graph.graph import FactorGraph
from minigibbs.samplers.gibbs.fields import FieldData, field_workspace
from minigibbs.samplers.gibbs.sampler import GibbsData, gibbs_data, sum_unary, touched_workspace
from minigibbs.samplers.gibbs.spin_fields import (
    SpinFieldData,
    spin_field_data,
    spin_field_workspace,
)
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates.base import Variant


def prepare_fields(graph: FactorGraph, split: Split) -> GibbsData | FieldData:
    """Prepare the data of plain Gibbs with cached fields."""
    return gibbs_data(graph, fields=True)


def prepare_spin_fields(graph: FactorGraph, split: Split) -> SpinFieldData:
    """Prepare the data of plain Gibbs for spins with cached fields."""
    return spin_field_data(graph, sum_unary(graph.packed))


def prepare(graph: FactorGraph, split: Split) -> GibbsData | FieldData:
    """Prepare the data of plain Gibbs without cached fields."""
    return gibbs_data(graph, fields=False)


FIELDS = Variant("fields", FieldData, prepare_fields, field_workspace)
SPIN_FIELDS = Variant("spin-fields", SpinFieldData, prepare_spin_fields, spin_field_workspace)
GIBBS = Variant("gibbs", GibbsData, prepare, touched_workspace)
