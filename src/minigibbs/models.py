"""Models by name: the models of the paper, and standard models of statistical physics.

>>> import minigibbs as mg
>>> mg.models.potts_lattice(side=8, states=3, beta=0.9)
<FactorGraph: 64 variables; factors: 128 potts>

Fully connected models have explicit pairs up to 2,048 variables, and are implicit (`mg.Complete`,
`mg.Kernel`) beyond, unless `implicit` is given. Only the default sampler supports these implicit
groups. Lattices have explicit pairs up to a million variables, and are implicit (`mg.Stencil`)
beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array, constant
from minigibbs.graph.factors import (
    Complete,
    Factors,
    Ising,
    Kernel,
    Points,
    Potts,
    Stencil,
    Table,
    Unary,
)
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.caller import warn

_SITE_BYTES = 4  # bytes per site of a large implicit lattice while it is sampled
_VARIABLE_BYTES = 64  # bytes per variable while its size is generated, stored and packed
_PAIR_BYTES = 64  # bytes per pair while it is generated, stored and packed
_VALUE_BYTES = 24  # bytes per table value while it is drawn, scaled and stored
_MOST_STATES = 2**31 - 1
_ROUNDED = 1e-3  # rounding error of sums of probabilities in half precision
_MOST_AXES = 64  # maximum number of axes of a NumPy array
_MOST_LATTICE = 2**20  # largest lattice with explicit pairs
_MOST_STORED = 2048  # largest fully connected model with explicit pairs, which are 2 million


@checked(GraphError)
def ising_rbf(
    side: int = 20, beta: float = 1.0, gamma: float = 1.5, implicit: bool | None = None
) -> FactorGraph:
    """Build the paper's Ising model: fully connected, couplings beta*exp(-gamma*d^2).

    Parameters
    ----------
    side : int, default 20
        Sites along each axis.
    beta : float, default 1.0
        The inverse temperature.
    gamma : float, default 1.5
        Decay of the couplings with the squared distance d^2.
    implicit : bool, optional
        Whether to represent the couplings by one `Kernel`, which stores no pairs. By default for
        large grids.

    Returns
    -------
    FactorGraph
        One spin per site.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> stats = ising_rbf().stats
    >>> round(stats.local_energy, 2), round(stats.total_energy, 1)
    (2.21, 416.1)
    """
    return _alike(_rbf("ising", side, beta, gamma, implicit), int(side) ** 2, 2)


@checked(GraphError)
def potts_rbf(
    side: int = 20,
    states: int = 10,
    beta: float = 4.6,
    gamma: float = 1.5,
    implicit: bool | None = None,
) -> FactorGraph:
    """Build the paper's Potts model: fully connected, weights beta*exp(-gamma*d^2).

    Parameters
    ----------
    side : int, default 20
        Sites along each axis.
    states : int, default 10
        Number of values of a variable.
    beta : float, default 4.6
        The inverse temperature.
    gamma : float, default 1.5
        Decay of the weights with the squared distance d^2.
    implicit : bool, optional
        Whether to represent the weights by one `Kernel`, which stores no pairs. By default for
        large grids.

    Returns
    -------
    FactorGraph
        One variable per site.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> stats = potts_rbf().stats
    >>> round(stats.local_energy, 2), round(stats.total_energy, 1)
    (5.09, 957.1)
    """
    return _alike(_rbf("potts", side, beta, gamma, implicit), int(side) ** 2, states)


@checked(GraphError)
def ising_lattice(
    side: int,
    beta: float,
    periodic: bool = True,
    implicit: bool | None = None,
    dimensions: int = 2,
) -> FactorGraph:
    """Build the Ising model with coupling beta between nearest neighbors of a lattice.

    Parameters
    ----------
    side : int
        Sites along each axis.
    beta : float
        The coupling.
    periodic : bool, default True
        Whether opposite faces are neighbors.
    implicit : bool, optional
        Whether to represent the couplings by one `Stencil`, which stores no pairs. By default for
        large lattices.
    dimensions : int, default 2
        Axes of the lattice: 1 for a chain, 2 for a square, 3 for a cube.

    Returns
    -------
    FactorGraph
        One spin per site.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> ising_lattice(side=4, beta=0.4).stats.max_degree
    4
    >>> ising_lattice(side=4, beta=0.2, dimensions=3)
    <FactorGraph: 64 variables; factors: 192 ising>
    >>> ising_lattice(side=4096, beta=0.4)
    <FactorGraph: 16,777,216 variables; factors: 33,554,432 stencil>
    """
    if _is_stencil(implicit, side, dimensions):
        group: Factors = _stencil("ising", side, beta, periodic, dimensions)
    else:
        group = Ising(*_lattice(side, periodic, dimensions), beta)
    return _alike(group, int(side) ** dimensions, 2)


@checked(GraphError)
def potts_lattice(
    side: int,
    states: int,
    beta: float,
    periodic: bool = True,
    implicit: bool | None = None,
    dimensions: int = 2,
) -> FactorGraph:
    """Build the Potts model with weight beta where nearest neighbors of a lattice agree.

    Parameters
    ----------
    side : int
        Sites along each axis.
    states : int
        Number of values of a variable.
    beta : float
        The weight.
    periodic : bool, default True
        Whether opposite faces are neighbors.
    implicit : bool, optional
        Whether to represent the weights by one `Stencil`, which stores no pairs. By default for
        large lattices.
    dimensions : int, default 2
        Axes of the lattice: 1 for a chain, 2 for a square, 3 for a cube.

    Returns
    -------
    FactorGraph
        One variable per site.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> potts_lattice(side=4, states=3, beta=0.5, periodic=False)
    <FactorGraph: 16 variables; factors: 24 potts>
    """
    if _is_stencil(implicit, side, dimensions):
        group: Factors = _stencil("potts", side, beta, periodic, dimensions)
    else:
        group = Potts(*_lattice(side, periodic, dimensions), beta)
    return _alike(group, int(side) ** dimensions, states)


@checked(GraphError)
def spin_glass(
    side: int,
    beta: float = 1.0,
    dimensions: int = 3,
    couplings: str = "normal",
    periodic: bool = True,
    seed: int = 0,
) -> FactorGraph:
    """Build an Edwards-Anderson spin glass: random couplings between neighbors of a lattice.

    Parameters
    ----------
    side : int
        Sites along each axis.
    beta : float, default 1.0
        The inverse temperature, by which couplings are multiplied.
    dimensions : int, default 3
        Axes of the lattice.
    couplings : {"normal", "signs"}, default "normal"
        Standard normal couplings, or +1 and -1 with equal probability.
    periodic : bool, default True
        Whether opposite faces are neighbors.
    seed : int, default 0
        Seed of the couplings.

    Returns
    -------
    FactorGraph
        One spin per site.

    Raises
    ------
    GraphError
        If a number is out of range, or `couplings` is unknown.

    Examples
    --------
    >>> spin_glass(side=4, beta=0.8, couplings="signs")
    <FactorGraph: 64 variables; factors: 192 ising>
    """
    i, j = _lattice(side, periodic, dimensions)
    return _alike(
        Ising(i, j, beta * _random_couplings(couplings, len(i), seed)), side**dimensions, 2
    )


@checked(GraphError)
def sherrington_kirkpatrick(
    n: int, beta: float = 1.0, couplings: str = "normal", seed: int = 0
) -> FactorGraph:
    """Build a Sherrington-Kirkpatrick spin glass: random couplings between all pairs of n spins.

    Couplings have variance beta^2 / n, so that the glass transition is at beta = 1.

    Parameters
    ----------
    n : int
        Number of spins.
    beta : float, default 1.0
        The inverse temperature.
    couplings : {"normal", "signs"}, default "normal"
        The distribution of couplings, before scaling.
    seed : int, default 0
        Seed of the couplings.

    Returns
    -------
    FactorGraph
        n spins.

    Raises
    ------
    GraphError
        If a number is out of range, or `couplings` is unknown.

    Examples
    --------
    >>> sherrington_kirkpatrick(n=100)
    <FactorGraph: 100 variables; factors: 4,950 ising>
    """
    n = _at_least("n", n, 2)
    i, j = _all_pairs(n)
    return _alike(Ising(i, j, beta / n**0.5 * _random_couplings(couplings, len(i), seed)), n, 2)


@checked(GraphError)
def curie_weiss(n: int, beta: float, implicit: bool | None = None) -> FactorGraph:
    """Build the mean-field Ising model: coupling beta/n between all pairs of n spins.

    Parameters
    ----------
    n : int
        Number of spins.
    beta : float
        The inverse temperature.
    implicit : bool, optional
        Whether to represent the couplings by one `Complete` group, which stores no pairs. By
        default for many spins.

    Returns
    -------
    FactorGraph
        n spins.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> curie_weiss(n=8, beta=1.0).log_potential([1] * 8)
    3.5
    >>> curie_weiss(n=1_000_000, beta=0.9).factors
    (<Complete: 499,999,500,000 factors, implicit>,)
    """
    n = _at_least("n", n, 2)
    if _is_implicit(implicit, n):
        return _alike(Complete(n, beta / n), n, 2)
    return _alike(Ising(*_all_pairs(n), beta / n), n, 2)


@checked(GraphError)
def long_range_ising(
    n: int, alpha: float, beta: float, implicit: bool | None = None
) -> FactorGraph:
    """Build a line of n spins with coupling beta/d^alpha between spins d apart.

    Parameters
    ----------
    n : int
        Number of spins.
    alpha : float
        Exponent of the decay.
    beta : float
        The inverse temperature.
    implicit : bool, optional
        Whether to represent the couplings by one `Kernel`, which stores no pairs. By default for
        many spins.

    Returns
    -------
    FactorGraph
        n spins.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> long_range_ising(n=3, alpha=2.0, beta=1.0).log_potential([1, 1, 1])
    2.25
    """
    n = _at_least("n", n, 2)
    if _is_implicit(implicit, n):
        line = Kernel((n,), lambda d: beta * np.abs(d) ** -float(alpha), kind="ising")
        return _alike(line, n, 2)
    i, j = _all_pairs(n)
    return _alike(Ising(i, j, beta * (j - i) ** -float(alpha)), n, 2)


@checked(GraphError)
def random_tables(
    variables: int = 100,
    factors: int = 300,
    arity: int = 2,
    states: int = 3,
    scale: float = 1.0,
    unary: float = 0.0,
    seed: int = 0,
) -> FactorGraph:
    """Build tables of normal log-potentials over random scopes, and unary factors.

    Parameters
    ----------
    variables : int, default 100
        Number of variables.
    factors : int, default 300
        Number of tables.
    arity : int, default 2
        Number of variables of each table.
    states : int, default 3
        Number of values of each variable.
    scale : float, default 1.0
        Standard deviation of the log-potentials.
    unary : float, default 0.0
        Standard deviation of unary log-potentials; 0 for no unary factors.
    seed : int, default 0
        Seed of the tables.

    Returns
    -------
    FactorGraph
        The model.

    Raises
    ------
    GraphError
        If a number is out of range.

    Examples
    --------
    >>> random_tables(variables=5, factors=4, arity=3, states=2)
    <FactorGraph: 5 variables; factors: 4 table>
    """
    arity = _at_least("arity", arity, 1)
    variables = _at_least("variables", variables, arity)
    factors = _at_least("factors", factors, 0)
    states = _at_least("states", states, 1)
    rng = np.random.default_rng(_at_least("seed", seed, 0))
    values = factors * states ** min(arity, _MOST_AXES) + variables * states
    memory.require(
        values * _VALUE_BYTES + factors * arity * _PAIR_BYTES,
        f"a model of {factors:,} tables over {arity} variables of {states} values each",
        "use fewer or smaller ones",
    )
    scope = np.array([rng.permutation(variables)[:arity] for _ in range(factors)])
    energy = scale * rng.standard_normal((factors, *(states,) * arity))
    groups: list[Any] = [Table(scope.reshape(factors, arity), energy)] if factors else []
    if unary:
        groups.append(Unary(np.arange(variables), unary * rng.standard_normal((variables, states))))
    return FactorGraph(np.full(variables, states), groups)


@checked(GraphError)
def dense_crf(
    image: ArrayLike,
    *,
    probabilities: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    sxy: float | tuple[float, float] = 3.0,
    compat: float = 3.0,
    bilateral_sxy: float | tuple[float, float] = 80.0,
    srgb: float | tuple[float, ...] = 13.0,
    bilateral_compat: float = 10.0,
    normalize: bool = True,
) -> FactorGraph:
    """Build a fully connected conditional random field over the pixels of an image.

    Every pair of pixels with the same label gains compat * k(places) + bilateral_compat * k(places,
    colors), with Gaussian k, as in Krahenbuhl and Koltun 2011 (arXiv:1210.5644). The parameters are
    those of pydensecrf. A compat of 0 omits a kernel.

    Parameters
    ----------
    image : array-like
        Colors of shape [height, width, channels], or [height, width] for one channel, usually 0
        to 255.
    probabilities : array-like, optional
        Probability of each label at each pixel, of shape [labels, height, width] or [labels,
        pixels], such as the softmax of a network. Give either these or `costs`. A probability of 0
        is a hard constraint.
    costs : array-like, optional
        Alternatively the cost of each label: the negative logarithm of a probability, like
        pydensecrf's unary energies. Lower is more probable.
    sxy : float or (float, float), default 3.0
        Width of the kernel over places, in pixels, or along x and along y.
    compat : float, default 3.0
        Strength of the kernel over places.
    bilateral_sxy : float or (float, float), default 80.0
        Width over places of the kernel over places and colors.
    srgb : float or tuple of float, default 13.0
        Width over colors of the kernel over places and colors, or one per channel.
    bilateral_compat : float, default 10.0
        Strength of the kernel over places and colors.
    normalize : bool, default True
        Whether to divide a kernel by sqrt(n_i * n_j), where n_i is the sum of k over all pixels,
        including i: pydensecrf's NORMALIZE_SYMMETRIC, its default.

    Returns
    -------
    FactorGraph
        One variable per pixel, row by row.

    Raises
    ------
    GraphError
        If shapes do not match, the image has its channels first, or `costs` contains probabilities
        or log-probabilities.

    Warns
    -----
    UserWarning
        If colors are between 0 and 1 and `srgb` is so large that the kernel ignores them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> image = rng.integers(0, 256, (6, 8, 3))
    >>> dense_crf(image, costs=rng.random((2, 6, 8)))
    <FactorGraph: 48 variables; factors: 48 unary, 1,128 points, 1,128 points>
    """
    pixels = as_array(image, "iuf", "dense_crf: image must be an array of numbers")
    if pixels.ndim > 1 and pixels.size:
        pixels = pixels.astype(np.float64).reshape(*pixels.shape[:2], -1)
    if pixels.ndim != 3 or pixels[..., 0].size < 2:
        raise GraphError(
            f"dense_crf: image must be [height, width, channels], got {np.shape(image)}"
        )
    count = pixels[..., 0].size
    log_potential = _pixel_logs(np.shape(image), pixels.shape[:2], probabilities, costs)
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]].reshape(2, -1)
    near = np.stack([x, y], axis=1) / _widths("sxy", sxy, 2)
    wide = np.stack([x, y], axis=1) / _widths("bilateral_sxy", bilateral_sxy, 2)
    color_widths = _widths("srgb", srgb, pixels.shape[2])
    low, high = pixels.min(), pixels.max()
    if bilateral_compat and 0 <= low < high <= 1 < color_widths.min():
        warn(
            f"dense_crf: the colors of the image are between 0 and 1, so that srgb={srgb} ignores "
            "them; give 255 * image, or divide srgb by 255"
        )
    colors = pixels.reshape(count, -1) / color_widths
    norms = "sums" if normalize else None
    groups: list[Factors] = [Unary(np.arange(count), log_potential.T)]
    for features, weight in ((near, compat), (np.hstack([wide, colors]), bilateral_compat)):
        if weight:
            groups.append(Points(features, weight=weight, norms=norms))
    return FactorGraph(np.full(count, len(log_potential)), groups)


def _pixel_logs(
    image: tuple[int, ...],
    size: tuple[int, ...],
    probabilities: ArrayLike | None,
    costs: ArrayLike | None,
) -> NDArray[np.float64]:
    """Compute log-potentials of the labels of each pixel: [label, pixel]."""
    if (probabilities is None) == (costs is None):
        raise GraphError("dense_crf: give either probabilities= or costs=")
    name, given = ("costs", costs) if probabilities is None else ("probabilities", probabilities)
    array = as_array(given, "iuf", f"dense_crf: {name} must be an array of numbers")
    count = math.prod(size)
    if not array.shape or not len(array) or array.shape[1:] not in ((count,), size):
        raise _wrong_crf(image, name, array.shape)
    array = array.reshape(len(array), count).astype(np.float64)
    if probabilities is None:
        if len(array) > 1 and _sum_to_one(array):
            raise GraphError("dense_crf: costs hold probabilities; give them as probabilities=")
        if len(array) > 1 and array.max() <= 0 and _sum_to_one(np.exp(array)):
            raise GraphError("dense_crf: costs hold log-probabilities; give costs=-costs")
        return 0.0 - array
    if not _sum_to_one(array):
        raise GraphError(
            "dense_crf: probabilities must be at least 0 and sum to 1 over the labels of each "
            "pixel; give other numbers as costs="
        )
    with np.errstate(divide="ignore"):
        logs: NDArray[np.float64] = np.log(array)
    return logs


def _sum_to_one(array: NDArray[np.float64]) -> bool:
    """Return whether columns are probabilities, up to the rounding of half precision."""
    return bool(array.min() >= 0 and (np.abs(array.sum(axis=0) - 1) <= _ROUNDED).all())


def _wrong_crf(image: tuple[int, ...], name: str, unary: tuple[int, ...]) -> GraphError:
    """Return the error for an image and costs or probabilities of different sizes."""
    height, width = image[:2]
    text = (
        f"dense_crf: {name} must be [labels, {height}, {width}] or [labels, {height * width}] for "
        f"an image [height, width, channels] of shape {image}; got shape {unary}"
    )
    beside = unary[1:] == image[1:] or unary[1:] == (math.prod(image[1:]),)
    if beside and image[0] < image[-1]:
        text += ". The image seems to have its channels first: give image.transpose(1, 2, 0)"
    elif unary[:2] == image[:2]:
        text += f". Its labels seem to come last: give {name}.transpose(2, 0, 1)"
    return GraphError(text)


def _widths(name: str, width: float | tuple[float, ...], axes: int) -> NDArray[np.float64]:
    """Return a kernel's width along each axis."""
    rule = f"dense_crf: {name} must be a positive number, or {axes} of them"
    widths = as_array(width, "iuf", rule).astype(np.float64)
    if widths.shape not in ((), (axes,)) or not ((widths > 0) & (widths < np.inf)).all():
        raise GraphError(f"{rule}; got {width!r}")
    return np.broadcast_to(widths, axes)


GENERATORS: dict[str, Callable[..., FactorGraph]] = {
    generator.__name__.replace("_", "-"): generator
    for generator in (
        ising_rbf,
        potts_rbf,
        ising_lattice,
        potts_lattice,
        spin_glass,
        sherrington_kirkpatrick,
        curie_weiss,
        long_range_ising,
        random_tables,
    )
}


def _at_least(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise GraphError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def _all_pairs(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    pairs = n * (n - 1) // 2
    memory.require(
        pairs * _PAIR_BYTES,
        f"a fully connected graph of {n:,} variables ({pairs:,} pairs)",
        "use a smaller one, or implicit=True",
    )
    i = np.repeat(np.arange(n, dtype=np.int32), np.arange(n - 1, -1, -1))
    first = np.cumsum(np.arange(n - 1, -1, -1)) - np.arange(n - 1, -1, -1)
    j = (np.arange(pairs) - first[i] + i + 1).astype(np.int32)
    return i, j


def _alike(group: Factors, variables: int, states: int) -> FactorGraph:
    """Build a graph of one group over variables of equal size."""
    if _at_least("states", states, 1) > _MOST_STATES:
        raise GraphError(f"states must be at most {_MOST_STATES:,}, got {states}")
    large = isinstance(group, Stencil) and variables > _MOST_LATTICE  # stores one size for all
    each = _SITE_BYTES if large else _VARIABLE_BYTES
    memory.require(variables * each, f"a model of {variables:,} variables", "use a smaller one")
    sizes = constant(states, variables)
    return FactorGraph(sizes if large else np.ascontiguousarray(sizes), [group])


def _is_implicit(implicit: bool | None, variables: int) -> bool:
    return variables > _MOST_STORED if implicit is None else bool(implicit)


def _axes(dimensions: int) -> int:
    if _at_least("dimensions", dimensions, 1) > _MOST_AXES:
        raise GraphError(f"dimensions must be at most {_MOST_AXES}, got {dimensions}")
    return int(dimensions)


def _random_couplings(kind: str, count: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(_at_least("seed", seed, 0))
    if kind == "signs":
        return rng.choice([-1.0, 1.0], count)
    if kind == "normal":
        return rng.normal(size=count)
    raise GraphError(f'couplings must be "normal" or "signs", got {kind!r}')


def _is_stencil(implicit: bool | None, side: int, dimensions: int) -> bool:
    return side ** _axes(dimensions) > _MOST_LATTICE if implicit is None else bool(implicit)


def _stencil(kind: str, side: int, beta: float, periodic: bool, dimensions: int) -> Stencil:
    """Build nearest neighbors on a lattice as a stencil, in the order of `_lattice`."""
    side = _at_least("side", side, 3 if periodic else 2)
    steps = np.eye(_axes(dimensions), dtype=int)[::-1].tolist()
    return Stencil((side,) * dimensions, steps, beta, bool(periodic), kind)


def _rbf(kind: str, side: int, beta: float, gamma: float, implicit: bool | None) -> Factors:
    """Build all pairs of a square grid, weighted by their distance."""
    beta, gamma = float(beta), float(gamma)  # Python integers may exceed NumPy's
    if _is_implicit(implicit, _at_least("side", side, 2) ** 2):
        return Kernel((side, side), lambda r, c: beta * np.exp(-gamma * (r**2 + c**2)), kind)
    i, j = _all_pairs(side * side)
    square = (i // side - j // side) ** 2 + (i % side - j % side) ** 2
    return {"ising": Ising, "potts": Potts}[kind](i, j, beta * np.exp(-gamma * square))


def _lattice(side: int, periodic: bool, dimensions: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return nearest neighbors on a lattice, along the last axis first.

    A periodic side of 2 would give each pair twice.
    """
    side, dimensions = _at_least("side", side, 3 if periodic else 2), _axes(dimensions)
    memory.require(
        side**dimensions * dimensions * _PAIR_BYTES,
        f"a lattice of {' x '.join([str(side)] * dimensions)}",
        "use a smaller one",
    )
    site = np.arange(side**dimensions, dtype=np.int32).reshape((side,) * dimensions)
    first, second = [], []
    for axis in reversed(range(dimensions)):
        here, there = site, np.roll(site, -1, axis)
        if not periodic:
            here, there = (np.take(one, range(side - 1), axis) for one in (here, there))
        first.append(here.ravel())
        second.append(there.ravel())
    return np.concatenate(first), np.concatenate(second)
