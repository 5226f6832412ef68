"""Layouts of chromatic scans, variants of updates, default scans, and costs of these.

A layout is the storage format of chains: the arrays that a scan reads, and the order of their
values in memory. This module alone chooses the layout. All other code calls it: runs, learning,
tempering, the default scan, the budget of energies and `mg.explain`.

To add a layout, write its arrays and tiles in `samplers/chromatic/`, and add an entry to `LAYOUTS`.
The first layout that fits is used. Its groups on other devices are listed in
`running.backends.cuda.GROUPS`. `tests/contract` tests every entry on every device that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.factors.implicit.points import Points
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import free_variables
from minigibbs.graph.prepared import prepared
from minigibbs.graph.simple import Simple
from minigibbs.kernels.layout import TABLE
from minigibbs.kernels.touched import DENSE_DOMAIN, LARGEST
from minigibbs.samplers.base import Sampler
from minigibbs.samplers.chromatic.general_tiles import (
    GENERAL_LANES,
    GeneralColors,
    GeneralTile,
    general_colors,
)
from minigibbs.samplers.chromatic.point_tiles import PointTile
from minigibbs.samplers.chromatic.points import (
    MOST_FEATURES,
    MOST_GROUPS,
    MOST_RATE,
    MOST_VALUES,
    PointColors,
    point_colors,
    proposal_rates,
)
from minigibbs.samplers.chromatic.small import (
    MOST_SMALL,
    MOST_TABLE,
    SmallColors,
    small_colors,
)
from minigibbs.samplers.chromatic.small_tails import (
    SmallTailColors,
    SmallTailLanes,
    SmallTailRow,
    small_tail_colors,
)
from minigibbs.samplers.chromatic.small_tiles import SmallLanes, SmallRow
from minigibbs.samplers.chromatic.spin_tails import (
    SpinTailColors,
    SpinTailLanes,
    SpinTailRow,
    spin_tail_colors,
)
from minigibbs.samplers.chromatic.spin_tiles import SpinLanes, SpinRow
from minigibbs.samplers.chromatic.spins import LOG2_E, SINGLE, SpinColors, spin_colors
from minigibbs.samplers.chromatic.stencil_bits import StencilBits, stencil_bits
from minigibbs.samplers.chromatic.stencil_bytes import ByteTile, StencilBytes, stencil_bytes
from minigibbs.samplers.chromatic.stencil_tiles import StencilTile
from minigibbs.samplers.chromatic.tile import LANES, Tile
from minigibbs.samplers.gibbs.fields import (
    LEAST_DEGREE,
    FieldData,
    fields_are_defined,
    rare_changes,
)
from minigibbs.samplers.gibbs.sampler import sum_unary
from minigibbs.samplers.poisson_gibbs.split import Split
from minigibbs.samplers.poisson_gibbs.updates import (
    carrying,
    general,
    large,
    plain,
    small,
    spins,
    strong,
)
from minigibbs.samplers.poisson_gibbs.updates.base import (
    Variant,
    few_pairs_drawn,
    losses_stay_precise,
    nothing_drawn,
)

CHROMATIC = "chromatic"
CPU, CUDA = "cpu", "cuda"
TOGETHER = 16  # least number of chains on a CPU that are stored and updated together
FULL_DEVICE = 1 << 17  # chains that fill a GPU, however small the colors
LEAST_COLOR = 64  # mean number of variables per color that fills a vector
LEAST_COLOR_CUDA = 32  # the same on a GPU, to fill a warp

_STENCIL, _STENCIL_ENERGY = 1.5, 0.5  # nanoseconds per update of a bit in space, per site
_BYTE, _BYTE_ENERGY = 1.3, 2.0  # the same of a byte in space, which also costs per value
_SPIN, _SPIN_PAIR = 3.0, 0.3  # nanoseconds per update of a spin, and per two factors at it
_SMALL, _SMALL_VALUE = 4.0, 1.4  # the same of a small domain, and per value
_FEW_PAIRS = 256.0  # largest degree for which a ladder of bits is always faster
_BIT_UPDATE, _BIT_PAIR = 1.0, 0.12  # nanoseconds in a ladder of bits: per update, per pair
_LANE_UPDATE, _LANE_VALUE = 1.0, 0.3  # nanoseconds in a ladder of bytes: per update, per value
_LANE_PAIR = 0.2  # and per pair and value
_FEW_VALUES = 100.0  # largest degree times values for which a ladder of bytes is always faster
_MOST_BITS = 256.0  # largest log weight in a ladder of bytes: rounding changes it by 2**-16
_MOST_ODDS = 300.0  # largest energy at a spin for which products of odds do not overflow
_KEPT = 16  # cached choices per graph


@dataclass(frozen=True)
class Layout:
    """The storage format of the chains of a chromatic scan, and the devices that support it.

    Parameters
    ----------
    name : str
        Its name in tests and messages.
    data : type
        The type of the arrays that `lay_out` returns.
    fits : callable
        `fits(sampler, graph)`: whether the layout can represent the model.
    lay_out : callable
        `lay_out(sampler, graph)`: the arrays that sweeps read.
    one, several : type
        The `Tile` of one chain on a CPU, and that of up to 64.
    devices : tuple of str
        The backends that have groups for it.
    lanes : int
        The number of chains that wait for each other for which the sampler splits factors.
    cost : callable
        `cost(graph)`: predicted nanoseconds per update, or None if only the sampler knows.
    energy_cost : callable
        `energy_cost(graph)`: predicted nanoseconds of one energy, or None for that of pairs.
    preferred : tuple of str
        Devices on which a chromatic scan is the default whenever the layout fits.
    why : str
        The reason for that, as `mg.explain` states it.
    scaled : callable or None
        `scaled(data, beta)`: the arrays with all log-potentials multiplied by beta.
    """

    name: str
    data: type
    fits: Callable[[Sampler, FactorGraph], bool]
    lay_out: Callable[[Sampler, FactorGraph], Any]
    one: Any
    several: Any
    devices: tuple[str, ...] = (CPU, CUDA)
    lanes: int = LANES
    cost: Callable[[FactorGraph], float | None] = lambda graph: None
    energy_cost: Callable[[FactorGraph], float | None] = lambda graph: None
    preferred: tuple[str, ...] = ()
    why: str = ""
    scaled: Callable[[Any, float], Any] | None = None


class ScanChoice(NamedTuple):
    """A scan, and the reason why it is the default."""

    scan: str
    why: str


# Conditions of the layouts.


def pairs_of_spins(graph: FactorGraph) -> bool:
    """Return whether all factors are soft pairs or unary, and all variables have two values."""
    rows = graph.rest.packed.rows
    pairs = not (rows["pair_end"] < rows["unary_begin"]).any() and not graph.implicits
    return pairs and bool((rows["domain"] == 2).all()) and not len(graph.hard)


def small_domains(graph: FactorGraph) -> bool:
    """Return whether domains are small, factors unary, pairs or two-variable tables, none hard."""
    model = graph.rest.packed
    if graph.implicits or len(graph.hard) or int(graph.sizes.max()) > MOST_SMALL:
        return False
    factors = model.factors[model.factors["span"] > 0]
    arity = factors["scope_end"] - factors["scope_start"]
    known = (arity == 1) | ((arity == 2) & (factors["form"] == TABLE))
    if not known.all() or float(graph.local_energies.max(initial=0.0)) * LOG2_E > SINGLE:
        return False
    large = float(np.abs(model.table).max(initial=0.0)) * LOG2_E > MOST_TABLE
    return not (large and bool((arity == 2).any()))


def draws_nothing(sampler: Sampler, graph: FactorGraph) -> bool:
    """Return whether every factor is evaluated, so that the update is that of plain Gibbs."""
    if sampler.evaluates_all(graph):
        return True
    split = sampler.factor_split(graph, LANES)
    return split is None or not split.tail.any()


def _fits_points(sampler: Sampler, graph: FactorGraph) -> bool:
    """Return whether all factors are points with a built-in kernel, or unary."""
    if not 0 < len(graph.implicits) <= MOST_GROUPS:
        return False
    for group in graph.implicits:
        if not isinstance(group, Points) or not isinstance(group.kernel, str):
            return False
        if group.features.shape[1] > MOST_FEATURES:
            return False
    rows = graph.packed.rows
    if (rows["start"] < rows["unary_begin"]).any() or len(graph.hard):
        return False
    if graph.sizes.max() > MOST_VALUES:
        return False
    split = sampler.factor_split(graph, 1)
    return split is not None and all(
        rates.max() <= MOST_RATE for rates in proposal_rates(graph, split)
    )


def _fits_tails(
    sampler: Sampler, graph: FactorGraph, update: Callable[[FactorGraph, Split], bool]
) -> bool:
    """Return whether some factors are drawn, `update` supports that, and nothing is clamped."""
    if (graph.evidence >= 0).any():
        return False
    split = sampler.factor_split(graph, LANES)
    return split is not None and bool(split.tail.any()) and update(graph, split)


def _split(sampler: Sampler, graph: FactorGraph) -> Split:
    split = sampler.factor_split(graph, LANES)
    assert split is not None
    return split


def _small_cost(graph: FactorGraph) -> float | None:
    """Return the cost of pairs; None for tables, which are vectorized less well."""
    rows = graph.packed.rows
    pairs = bool((rows["pair_end"] == rows["unary_begin"]).all())
    return _SMALL + _SMALL_VALUE * float(graph.sizes.mean()) if pairs else None


def _fits_stencil(sampler: Sampler, graph: FactorGraph) -> bool:
    """Return whether a graph is a supported lattice of spins, and no factor is drawn."""
    lattice = graph.lattice is not None and draws_nothing(sampler, graph)
    return lattice and stencil_bits(graph) is not None


def _fits_stencil_bytes(sampler: Sampler, graph: FactorGraph) -> bool:
    """Return whether a graph is a supported lattice of small domains, and no factor is drawn."""
    lattice = graph.lattice is not None and draws_nothing(sampler, graph)
    return lattice and stencil_bytes(graph) is not None


def _scaled(data: Any, beta: float, *names: str) -> Any:
    """Multiply some arrays of a layout, in their own precision, by beta."""
    arrays = {name: getattr(data, name) for name in names}
    return data._replace(**{name: own * own.dtype.type(beta) for name, own in arrays.items()})


STENCIL = Layout(
    name="stencil",
    data=StencilBits,
    fits=_fits_stencil,
    lay_out=lambda sampler, graph: stencil_bits(graph),
    one=StencilTile,
    several=StencilTile,
    cost=lambda graph: _STENCIL,
    energy_cost=lambda graph: _STENCIL_ENERGY * len(graph),
)
STENCIL_BYTES = Layout(
    name="stencil-bytes",
    data=StencilBytes,
    fits=_fits_stencil_bytes,
    lay_out=lambda sampler, graph: stencil_bytes(graph),
    one=ByteTile,
    several=ByteTile,
    devices=(CPU,),
    cost=lambda graph: _BYTE + _SMALL_VALUE * int(graph.sizes[0]),
    energy_cost=lambda graph: _BYTE_ENERGY * len(graph),
)
POINTS = Layout(
    name="points",
    data=PointColors,
    fits=_fits_points,
    lay_out=lambda sampler, graph: point_colors(graph, _split(sampler, graph)),
    one=PointTile,
    several=PointTile,
    preferred=(CUDA,),
    why="proposals of points depend on no state",
)
SPINS = Layout(
    name="spins",
    data=SpinColors,
    fits=lambda sampler, graph: pairs_of_spins(graph) and draws_nothing(sampler, graph),
    lay_out=lambda sampler, graph: spin_colors(graph),
    one=SpinRow,
    several=SpinLanes,
    cost=lambda graph: _SPIN + _SPIN_PAIR * len(graph.packed.pair_weight) / len(graph),
    scaled=lambda data, beta: _scaled(data, beta, "base", "weight"),
)
SMALL = Layout(
    name="small",
    data=SmallColors,
    fits=lambda sampler, graph: small_domains(graph) and draws_nothing(sampler, graph),
    lay_out=lambda sampler, graph: small_colors(graph),
    one=SmallRow,
    several=SmallLanes,
    cost=_small_cost,
    scaled=lambda data, beta: _scaled(data, beta, "base", "weight", "table"),
)
SPIN_TAILS = Layout(
    name="spin-tails",
    data=SpinTailColors,
    fits=lambda sampler, graph: pairs_of_spins(graph) and _fits_tails(sampler, graph, _odds_hold),
    lay_out=lambda sampler, graph: spin_tail_colors(graph, _split(sampler, graph)),
    one=SpinTailRow,
    several=SpinTailLanes,
)
SMALL_TAILS = Layout(
    name="small-tails",
    data=SmallTailColors,
    fits=lambda sampler, graph: (
        small_domains(graph) and _fits_tails(sampler, graph, _all_values_listed)
    ),
    lay_out=lambda sampler, graph: small_tail_colors(graph, _split(sampler, graph)),
    one=SmallTailRow,
    several=SmallTailLanes,
)
GENERAL = Layout(
    name="general",
    data=GeneralColors,
    fits=lambda sampler, graph: not graph.implicits,
    lay_out=general_colors,
    one=GeneralTile,
    several=GeneralTile,
    devices=(CPU,),
    lanes=GENERAL_LANES,
)
LAYOUTS = (STENCIL, STENCIL_BYTES, POINTS, SPINS, SMALL, SPIN_TAILS, SMALL_TAILS, GENERAL)


def check_colors(sampler: Sampler, graph: FactorGraph) -> None:
    """Refuse a sampler or a graph that has no chromatic scan."""
    sampler.check_chromatic()
    if _first(sampler, graph) is None:
        raise SampleError(
            'scan="chromatic" needs stored factors, or mg.Points and unary ones alone, but this '
            'graph has other implicit ones, which join all variables; use scan="random" or '
            "graph.stored()"
        )


def _first(sampler: Sampler, graph: FactorGraph, device: str | None = None) -> Layout | None:
    """Return the first layout that fits, on any device or on one."""
    for layout in LAYOUTS:
        if (device is None or device in layout.devices) and layout.fits(sampler, graph):
            return layout
    return None


def chromatic_layout(sampler: Sampler, graph: FactorGraph, device: str = CPU) -> Layout:
    """Return the layout of a chromatic scan.

    Parameters
    ----------
    sampler : Sampler
        The sampler that updates the variables.
    graph : FactorGraph
        The model; the choice is cached with it.
    device : str, default "cpu"
        The name of the backend.

    Returns
    -------
    Layout
        The first of `LAYOUTS` that fits and supports the device.

    Raises
    ------
    SampleError
        If there is none, or none on this device.
    """
    key = (sampler, str(sampler), device)  # the text distinguishes settings such as 1 and True
    found = prepared(graph, "layout", key, lambda: _first(sampler, graph, device), _KEPT)
    if found is None:
        check_colors(sampler, graph)  # raises a more specific error if no device has one
        raise SampleError(
            f'scan="chromatic" on backend="{device}" is for variables of few values, joined by '
            "pairs and tables of two without zeros, of which only pairs are drawn; leave "
            'scan out, or use backend="cpu"'
        )
    return found


def scaled_layout(sampler: Sampler, graph: FactorGraph) -> Layout | None:
    """Return the layout of a chromatic scan on the CPU whose log-potentials can be scaled.

    Parameters
    ----------
    sampler : Sampler
        The sampler that updates the variables.
    graph : FactorGraph
        The model.

    Returns
    -------
    Layout or None
        The first of `LAYOUTS` that fits and has `scaled`; None if there is none.
    """
    some = (layout for layout in LAYOUTS if layout.scaled is not None)
    return next((layout for layout in some if layout.fits(sampler, graph)), None)


def color_data(sampler: Sampler, graph: FactorGraph, device: str = CPU) -> Any:
    """Return the arrays that chromatic sweeps of a graph read; see `chromatic_layout`."""
    return chromatic_layout(sampler, graph, device).lay_out(sampler, graph)


def make_tile(
    sampler: Sampler, graph: FactorGraph, data: Any, first: int, states: NDArray[Any], seed: int
) -> Tile:
    """Create the tile of some chains on a CPU.

    Parameters
    ----------
    sampler : Sampler
        The sampler that updates the variables.
    graph : FactorGraph
        The model.
    data
        The arrays that `color_data` returned.
    first : int
        The number of the first chain, a multiple of 8 for several chains.
    states : array [chain, variable]
        Their first states.
    seed : int
        The seed of the run.

    Returns
    -------
    Tile
    """
    layout = next(layout for layout in LAYOUTS if layout.data is type(data))
    kind = layout.one if len(states) == 1 else layout.several
    more = (sampler,) if layout is GENERAL else ()
    tile: Tile = kind(graph, data, first, states, seed, *more)
    return tile


# The default scan.


def choose_scan(
    sampler: Sampler, graph: FactorGraph, chains: int, sweeps: bool = True, device: str = CPU
) -> ScanChoice:
    """Return the scan of a run if none is requested.

    It is the scan with the most effective samples per second, as `benchmarks/results/defaults.md`
    shows. The choice depends only on the arguments, so a seed determines the draws for any number
    of threads.

    Parameters
    ----------
    sampler : Sampler
        The sampler that updates the variables.
    graph : FactorGraph
        The model; the choice is cached with it.
    chains : int
        The number of chains.
    sweeps : bool, default True
        Whether the run's length is given in sweeps, which chromatic scans require.
    device : str, default "cpu"
        The name of the backend.

    Returns
    -------
    ScanChoice
        The scan, and the reason for it.
    """
    if sweeps:
        for layout in LAYOUTS:
            if device in layout.preferred and layout.fits(sampler, graph):
                return ScanChoice(CHROMATIC, layout.why)
    sweeps = sweeps and any(device in layout.devices for layout in LAYOUTS)
    crowd = chains >= (FULL_DEVICE if device == CUDA else TOGETHER)
    key = (str(sampler), crowd, device)

    def choose() -> ScanChoice:
        return _choose(sampler, graph, crowd, device)

    chosen = prepared(graph, "scan", key, choose, most=_KEPT)
    if chosen.scan == CHROMATIC and not sweeps:
        chosen = _one_by_one(sampler, chosen.why)
    if chosen.scan == "random" and device == CUDA:
        return ScanChoice("shared", "threads of a GPU then read the same factors")
    return chosen


def _one_by_one(sampler: Sampler, why: str) -> ScanChoice:
    """Return the scan of a run that updates one variable after another, and the reason.

    A fixed order reads memory in order and mixes in about half the sweeps. It is not used if it
    would invalidate a statement about the sampler: published samplers visit variables at random,
    and a guaranteed slowdown is about a random scan.
    """
    if sampler.random_because:
        return ScanChoice("random", sampler.random_because)
    return ScanChoice("systematic", why)


def _choose(sampler: Sampler, graph: FactorGraph, crowd: bool, device: str) -> ScanChoice:
    if sampler.random_because:
        return _one_by_one(sampler, "")
    if graph.implicits:
        why = "implicit factors couple all variables, so no two can be updated at once"
        return _one_by_one(sampler, why)
    free, least = graph.free, LEAST_COLOR_CUDA if device == CUDA else LEAST_COLOR
    bits = stencil_bits(graph) if sampler.evaluates_all(graph) else None
    if bits is not None and free >= least * bits.lattice.colors:
        colors = bits.lattice.colors
        return ScanChoice(
            CHROMATIC,
            f"its {colors} colors have {free // colors:,} variables each, which are stored as bits "
            "and updated together",
        )
    if not pairs_of_spins(graph) and not small_domains(graph):
        why = "chromatic scans have no layout for hard constraints, large domains or large scopes"
        return _one_by_one(sampler, why)
    if crowd and _first(sampler, graph, device) not in (GENERAL, None):
        return ScanChoice(CHROMATIC, "this many chains are updated together")
    if not free:
        return _one_by_one(sampler, "evidence clamps every variable")
    entries = len(graph.packed.weight)  # more than half of all pairs makes colors small
    if 2 * entries > free * free or free < least * graph.colors.count:
        return _one_by_one(sampler, f"its colors have fewer than {least} variables each")
    if not draws_nothing(sampler, graph):
        return _one_by_one(sampler, "factors are drawn, chain by chain")
    return ScanChoice(
        CHROMATIC,
        f"its {graph.colors.count} colors have {free // graph.colors.count:,} variables each, "
        "which are updated together",
    )


# Temperature ladders, and chains whose weights are learned.


def ladder_in_bits(graph: FactorGraph, simple: Simple, drawing: Callable[[], float]) -> bool:
    """Return whether the replicas of a temperature ladder are stored as bits of words.

    Parameters
    ----------
    graph : FactorGraph
        The model. With hard constraints its replicas are never bits, since they share all zeros.
    simple : Simple
        The same, simplified.
    drawing : callable
        `drawing()`: predicted nanoseconds per update by the default sampler.

    Returns
    -------
    bool
        Whether the free variables are spins joined only by pairs (some may have one value), and
        evaluating every pair, for 64 replicas per word, costs less than drawing some pairs.
    """
    free = graph.evidence < 0
    if graph.implicits or len(graph.hard) or len(simple.rest):
        return False
    if int(graph.sizes[free].max(initial=1)) != 2 or not np.isfinite(simple.unary).all():
        return False
    degree = 2.0 * len(simple.pair) / max(len(free_variables(graph.evidence)), 1)
    if degree <= _FEW_PAIRS:
        return True
    cost = prepared(graph, "cost of an update", None, drawing)
    return _BIT_UPDATE + _BIT_PAIR * degree < cost


def ladder_in_lanes(
    graph: FactorGraph,
    simple: Simple,
    unary: NDArray[np.float64],
    span: NDArray[np.float64],
    drawing: Callable[[], float],
) -> bool:
    """Return whether the replicas of a temperature ladder are stored as bytes of 64 lanes.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    simple : Simple
        The same, simplified.
    unary : array [sum of sizes]
        Energies of values, with soft zeros.
    span : array [general factors]
        Ranges of general factors, with soft zeros.
    drawing : callable
        `drawing()`: predicted nanoseconds per update by the default sampler.

    Returns
    -------
    bool
        Whether domains are small, joined by pairs and tables of two variables with energies for
        which single precision suffices, and evaluating all of them costs less than drawing some.
    """
    free = free_variables(graph.evidence)
    largest = int(graph.sizes[free].max(initial=1))
    factors = graph.packed.factors[simple.rest]
    arity = factors["scope_end"] - factors["scope_start"]
    if graph.implicits or not 1 < largest <= MOST_SMALL or graph.state_type != np.uint8:
        return False
    if ((arity != 2) | (factors["form"] != TABLE)).any():
        return False
    low, high = (some.reduceat(unary, graph.packed.first) for some in (np.minimum, np.maximum))
    range_ = high - low
    np.add.at(range_, simple.pair, np.abs(simple.pair_weight)[:, None])
    ends = graph.packed.slots["variable"][factors["scope_start"][:, None] + np.arange(2)]
    np.add.at(range_, ends, span[simple.rest][:, None])
    if float(range_[free].max(initial=0.0)) * LOG2_E > _MOST_BITS:
        return False
    degree = 2.0 * (len(simple.pair) + len(simple.rest)) / max(len(free), 1)
    mean = float(graph.sizes[free].mean())
    if mean * degree <= _FEW_VALUES:
        return True
    cost = prepared(graph, "cost of an update", None, drawing)
    return _LANE_UPDATE + mean * (_LANE_VALUE + _LANE_PAIR * degree) < cost


def learned_layout(graph: FactorGraph) -> Layout | None:
    """Return the layout of plain Gibbs chains whose weights are updated in place.

    Learned tables must have one parameter per entry, because the layout shares tables of one
    weight.

    Parameters
    ----------
    graph : FactorGraph
        The model.

    Returns
    -------
    Layout or None
        None if variables are clamped, domains are large, or factors have more than two variables.
    """
    frame = graph.frame
    if graph.implicits or len(graph.hard) or (graph.evidence != FREE).any():
        return None
    if int(graph.sizes.max()) > MOST_SMALL or not frame.size:
        return None
    factors = frame.structure.factors
    arity = factors["scope_end"] - factors["scope_start"]
    pairs = (arity == 2) & (factors["form"] == TABLE)
    pairs &= (frame.ties.factor < 0) | frame.ties.entries
    if not ((arity == 1) | pairs).all():
        return None
    return SPINS if (graph.sizes == 2).all() and (arity == 1).all() else SMALL


# Variants of the update of one variable of Poisson-Gibbs.


def _fields_pay(graph: FactorGraph, split: Split) -> bool:
    """Return whether nothing is drawn, and changes are so rare that caching fields is faster."""
    if split.lanes > 1 or not nothing_drawn(graph, split):
        return False
    return rare_changes(graph, FieldData(sum_unary(graph.packed))) is not None


def _spin_fields_pay(graph: FactorGraph, split: Split) -> bool:
    """Return whether nothing is drawn, and all variables are spins with many neighbors."""
    if split.lanes > 1 or not nothing_drawn(graph, split):
        return False
    free = int(np.count_nonzero(graph.evidence < 0))
    many = len(graph.packed.weight) >= LEAST_DEGREE * max(free, 1)
    return many and bool((graph.sizes == 2).all()) and fields_are_defined(graph)


def _odds_hold(graph: FactorGraph, split: Split) -> bool:
    """Return whether all factors are pairs of spins or unary, and no product of odds overflows."""
    two = few_pairs_drawn(graph, split) and bool((graph.packed.rows["domain"] == 2).all())
    return two and float((split.exact + split.tail).max(initial=0.0)) <= _MOST_ODDS


def _all_values_listed(graph: FactorGraph, split: Split) -> bool:
    """Return whether every factor is a pair or unary, draws are few, and domains are small."""
    return few_pairs_drawn(graph, split) and bool(graph.sizes.max() <= DENSE_DOMAIN)


def _touched_values(graph: FactorGraph, split: Split) -> bool:
    """Return whether every factor is a pair or unary, draws are few, and losses stay precise."""
    every = np.ones(len(graph), dtype=bool)
    return few_pairs_drawn(graph, split) and losses_stay_precise(graph, split, every)


def _products_hold(graph: FactorGraph, split: Split) -> bool:
    """Return whether no product overflows, and losses stay precise."""
    listed = graph.packed.rows["domain"] > DENSE_DOMAIN
    return split.log_range <= LARGEST and losses_stay_precise(graph, split, listed)


def _carries_sums(graph: FactorGraph, split: Split) -> bool:
    """Return whether a group is evaluated through running sums."""
    return any(group.projected for group in split.implicits)


def _carries_sums_of_products(graph: FactorGraph, split: Split) -> bool:
    """Return whether a group is evaluated through running sums, and no product overflows."""
    return _carries_sums(graph, split) and _products_hold(graph, split)


VARIANTS: tuple[tuple[Variant, Callable[[FactorGraph, Split], bool]], ...] = (
    (plain.FIELDS, _fields_pay),
    (plain.SPIN_FIELDS, _spin_fields_pay),
    (plain.GIBBS, nothing_drawn),
    (spins.SPINS, _odds_hold),
    (small.SMALL, _all_values_listed),
    (large.LARGE, _touched_values),
    (carrying.CARRYING, _carries_sums_of_products),
    (carrying.STRONG_CARRYING, _carries_sums),
    (general.GENERAL, _products_hold),
    (strong.STRONG, lambda graph, split: True),
)


def choose_variant(graph: FactorGraph, split: Split) -> Variant:
    """Return the first variant of the update of one variable whose condition holds."""
    return next(variant for variant, holds in VARIANTS if holds(graph, split))


def variant_of(data: Any) -> Variant:
    """Return the variant that prepared `data`."""
    return next(variant for variant, _ in VARIANTS if variant.data is type(data))
