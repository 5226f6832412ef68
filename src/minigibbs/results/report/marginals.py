"""Section of the report on marginals: maps, bars, and a table of all variables."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.domains import Grid
from minigibbs.results.report import pictures
from minigibbs.results.report.beliefs import Beliefs
from minigibbs.results.report.markup import Html, cut, element, join, table
from minigibbs.results.report.markup import name as named

if TYPE_CHECKING:
    from minigibbs.results.run import Run

_SHOW_ALL = 30  # number of variables up to which each has bars
_MOST_OF_A_KIND = 12  # variables with bars that agree least, and as many of the most uncertain
_MOST_BARS = 8  # values with a bar per variable; the others are summed
_MOST_MAPS, _SMALL = 4, 120  # number of chains with their own map, and pixels per side of each
_MOST_GRIDS = 3  # maps of grid domains
_TABLE_ROWS, _TABLE_BYTES = 3000, 350_000  # the first limit reached ends the table


def section(found: Beliefs, shape: tuple[int, ...] | None, source: str) -> Html:
    """Return the section on marginals; `source` names the records that they come from."""
    whose = "each variable"
    if len(found.marginals.sizes) < found.variables:
        known = len(found.marginals.sizes)
        whose = f"the {known:,} of {found.variables:,} variables whose draws were kept"
    return join(
        element("h2", "Marginals"),
        element("p", f"The probability of each value of {whose}, {source}."),
        _site_map(found, shape),
        *_grid_maps(found),
        _certainty(found),
        _cards(found),
        _table(found),
    )


def of_run(run: Run, found: Beliefs | None, shape: tuple[int, ...] | None) -> Html:
    """Return the section on a run's marginals, or the reason why there are none."""
    title = element("h2", "Marginals")
    if found is None and (run.counts is not None or run.kept_draws is not None):
        return join(title, element("p", "There are none: the run is too short."))
    if found is None:
        how = element("code", 'record=("marginals",)')
        return join(
            title, element("p", "Neither marginals nor draws were recorded; use ", how, ".")
        )
    source = "every update" if run.counts is not None else "the recorded draws"
    return section(found, shape, f"from {source} of all chains")


def _site_map(found: Beliefs, shape: tuple[int, ...] | None) -> Html:
    """Variables of a lattice, as a map of all chains and one of each."""
    if shape is None:
        return Html("")
    if (found.marginals.sizes == 2).all():
        value = _value(found, 0, 1)
        what, legend = join("probability of the value ", named(value)), pictures.scale("0", "1")
        alt = f"probability of the value {cut(value)} at each site"
        draw = partial(_share_map, shape=shape)
    elif found.marginals.sizes.max() <= len(pictures.kind_colors()):
        alt = "most probable value at each site"
        what, draw = Html("most probable value"), partial(_kind_map, found=found, shape=shape)
        values = range(int(found.marginals.sizes.max()))
        legend = _key([named(_value(found, 0, value)) for value in values])
    else:
        numbers = _numbers(found)
        means = np.add.reduceat(found.marginals.pooled * numbers, found.marginals.first)
        ends = (float(means.min()), float(means.max()))
        alt, what = "mean value at each site", Html("mean value")
        legend = pictures.scale(f"{ends[0]:.4g}", f"{ends[1]:.4g}")
        draw = partial(_mean_map, found=found, shape=shape, numbers=numbers, ends=ends)
    whole = element(
        "div", draw(found.marginals.pooled, label=f"Map of the {alt}", most=pictures.MOST_PIXELS)
    )
    small = [
        element("li", draw(flat, label=f"The same of chain {k + 1}", most=_SMALL), f"chain {k + 1}")
        for k, flat in zip(found.numbers[:_MOST_MAPS], found.marginals.rows, strict=False)
    ]
    maps = element("div", whole, element("ul", *small), class_="maps")
    chains = ", over all chains (large) and in single ones (small)." if small else "."
    words = join("At each site the ", what, chains)
    note = _thinned(shape, "sites")
    return element("figure", maps, legend, element("figcaption", words, note))


def _share_map(flat: NDArray[Any], label: str, most: int, shape: tuple[int, ...]) -> Html:
    return pictures.heat(pictures.shrink(flat[1::2].reshape(shape), most), 0.0, 1.0, label)


def _kind_map(
    flat: NDArray[Any], label: str, most: int, found: Beliefs, shape: tuple[int, ...]
) -> Html:
    places = found.marginals.likeliest_in(flat).reshape(shape)
    return pictures.kinds(pictures.shrink(places, most), label)


def _mean_map(
    flat: NDArray[Any],
    label: str,
    most: int,
    found: Beliefs,
    shape: tuple[int, ...],
    numbers: NDArray[np.float64],
    ends: tuple[float, float],
) -> Html:
    means = np.add.reduceat(flat * numbers, found.marginals.first).reshape(shape)
    return pictures.heat(pictures.shrink(means, most), *ends, label)


def _grid_maps(found: Beliefs) -> list[Html]:
    """Return maps of variables with the same grid of points, one row per variable."""
    groups: dict[Grid, list[int]] = {}
    for variable, grid in found.domains.grids.items():
        groups.setdefault(grid, []).append(variable)
    large = [(grid, members) for grid, members in groups.items() if len(members) > 1]
    maps = [_grid_map(found, grid, members) for grid, members in large[:_MOST_GRIDS]]
    if len(large) > _MOST_GRIDS:
        left = len(large) - _MOST_GRIDS
        maps.append(
            element("p", f"{left:,} other grids have no picture here.", class_="small soft")
        )
    return maps


def _grid_map(found: Beliefs, grid: Grid, members: list[int]) -> Html:
    rows: NDArray[Any] = np.stack([found.marginal(variable) for variable in members])
    high = float(rows.max())
    first, last = found.domains.name(members[0]), found.domains.name(members[-1])
    label = (
        f"Marginals of {len(members):,} variables over {int(grid.points)} points from "
        f"{grid.low:g} to {grid.high:g}; a row is a variable, brighter is more probable"
    )
    picture = pictures.heat(pictures.shrink(rows), 0.0, high, label, "map fill")
    ends = element(
        "div",
        *(element("span", f"{x:.4g}") for x in (grid.low, (grid.low + grid.high) / 2, grid.high)),
        class_="ends",
    )
    words = join(
        f"{len(members):,} variables, a row each from ",
        named(first),
        " (top) to ",
        named(last),
        "; across, their values. Bright is probable.",
        _thinned(rows.shape, "variables and points"),
    )
    scale = pictures.scale("0", f"{high:.3g}")
    return element("figure", picture, ends, scale, element("figcaption", words))


def _certainty(found: Beliefs) -> Html:
    """Return a histogram of the largest probabilities of all variables."""
    top = np.delete(
        found.marginals.top, list(found.domains.grids)
    )  # values of a fine grid all have small probabilities
    if len(top) <= _SHOW_ALL:
        return Html("")
    counts = np.histogram(np.minimum(top, 1.0), bins=20, range=(0.0, 1.0))[0]
    sure = int(np.count_nonzero(top >= 0.95))
    words = (
        f"How sure {len(top):,} variables are: their number by the probability of their most "
        f"probable value. {sure:,} are at least 95% sure of it."
    )
    picture = pictures.columns(counts, words, ("0%", "probability of the best value", "100%"))
    return element("figure", picture, element("figcaption", words))


def _cards(found: Beliefs) -> Html:
    """Return bars for all variables if they are few, else for a selection."""
    legend = "Bars and areas are all chains together; fine marks and lines are single ones."
    variables = len(found.marginals.sizes)
    if variables <= _SHOW_ALL:
        cards = [_card(found, variable) for variable in range(variables)]
        return join(
            element("h3", "Every variable"),
            element("p", legend, class_="small soft"),
            element("div", *cards, class_="cards"),
        )
    apart = found.least_agreed(_MOST_OF_A_KIND)
    seen = set(apart)
    uncertain = found.most_uncertain(_MOST_OF_A_KIND + len(apart))
    uncertain = [variable for variable in uncertain if variable not in seen][:_MOST_OF_A_KIND]
    parts: list[Html] = []
    for heading, chosen in (
        ("On which the chains agree least", apart),
        ("Of which least is known", uncertain),
    ):
        if chosen:
            parts.append(element("h3", heading))
            parts.append(element("p", legend, class_="small soft"))
            cards = [_card(found, variable) for variable in chosen]
            parts.append(element("div", *cards, class_="cards"))
    return join(*parts)


def _card(found: Beliefs, variable: int) -> Html:
    title = element("h3", named(found.domains.name(variable)))
    grid = found.domains.grids.get(variable)
    if grid is not None and grid.points > _MOST_BARS:
        return element("div", title, _curve(found, variable, grid), class_="card")
    row, chains = found.marginal(variable), found.by_chain(variable)
    places = np.arange(len(row))
    if len(row) > _MOST_BARS:
        places = np.sort(np.argsort(-row, kind="stable")[: _MOST_BARS - 1])
    bars = [
        _bar(named(_value(found, variable, int(place))), float(row[place]), chains[:, place])
        for place in places
    ]
    if len(places) < len(row):
        rest = np.setdiff1d(np.arange(len(row)), places)
        label = element("em", f"{len(rest):,} others")
        bars.append(_bar(label, float(row[rest].sum()), chains[:, rest].sum(axis=1)))
    return element("div", title, element("table", element("tbody", *bars)), class_="card")


def _bar(label: Html, share: float, chains: NDArray[np.float64]) -> Html:
    marks = [element("i", style=f"left:{100 * chain:.1f}%") for chain in chains[:8]]
    bar = element("div", element("b", style=f"width:{100 * share:.1f}%"), *marks, class_="bar")
    return element(
        "tr", element("th", label, scope="row"), element("td", bar), element("td", _percent(share))
    )


def _curve(found: Beliefs, variable: int, grid: Grid) -> Html:
    row = found.marginal(variable)
    mean = float(row @ grid.values)
    spread = math.sqrt(max(float(row @ (grid.values - mean) ** 2), 0.0))
    words = f"mean {mean:.3g} ± {spread:.2g} (standard deviation)"
    ends = (f"{grid.low:.4g}", "", f"{grid.high:.4g}")
    picture = pictures.area(row, found.by_chain(variable)[:8], f"Marginal: {words}", ends)
    return join(element("p", words, class_="small soft"), picture)


def _table(found: Beliefs) -> Html:
    """Return a searchable table of the variables, up to its limits of size."""
    rows: list[list[object]] = []
    written = 0
    for variable in range(min(len(found.marginals.sizes), _TABLE_ROWS)):
        best = int(found.marginals.likeliest[variable])
        row: list[object] = [
            named(found.domains.name(variable)),
            named(_value(found, variable, best)),
            _percent(float(found.marginals.top[variable])),
            f"{found.marginals.spread[variable]:.1%}",
        ]
        written += sum(len(str(cell)) + 9 for cell in row)
        if written > _TABLE_BYTES:
            break
        rows.append(row)
    head = ["variable", "most probable value", "its probability", "chains apart"]
    left = len(found.marginals.sizes) - len(rows)
    which = "Every variable" if not left else f"The first {len(rows):,} variables"
    note = Html("")
    if left:
        words = (
            f"{left:,} variables are left out of this table to keep the page small; "
            "all are in the run: "
        )
        note = element("p", words, element("code", "run.marginals"), class_="small soft")
    find = element(
        "label", "Find a variable", element("input", id="find", type="search"), hidden=True
    )
    body = element("div", table(head, rows, id="all"), class_="wide")
    return join(element("details", element("summary", which), find, body), note)


def _value(found: Beliefs, variable: int, place: int) -> object:
    """Return a value as users know it, without listing all of a large domain."""
    grid = found.domains.grids.get(variable)
    if grid is not None:
        return f"{grid.low + (grid.high - grid.low) * place / (grid.points - 1):.6g}"
    labels = found.domains.labels.get(variable)
    return place if labels is None else labels[place]


def _numbers(found: Beliefs) -> NDArray[np.float64]:
    """Return each value as a number: its grid point, or its index in the domain."""
    flat = np.arange(len(found.marginals.pooled)) - np.repeat(
        found.marginals.first, found.marginals.sizes
    )
    numbers: NDArray[np.float64] = flat.astype(np.float64)
    for variable, grid in found.domains.grids.items():
        start = int(found.marginals.first[variable])
        numbers[start : start + int(grid.points)] = grid.values
    return numbers


def _key(labels: list[Html]) -> Html:
    items = [
        element("li", element("i", style=f"background:{color}"), label)
        for color, label in zip(pictures.kind_colors(), labels, strict=False)
    ]
    return element("ul", *items, class_="legend")


def _thinned(shape: tuple[int, ...], what: str) -> str:
    if max(shape) <= pictures.MOST_PIXELS:
        return ""
    return f" Of {shape[0]:,} by {shape[1]:,} {what} evenly spaced ones are shown."


def _percent(share: float) -> str:
    """Format a probability without rounding uncertain ones to 0% or 100%."""
    text = f"{share:.1%}"
    if text == "100.0%" and share < 1:
        return ">99.9%"
    return "<0.1%" if text == "0.0%" and share > 0 else text
