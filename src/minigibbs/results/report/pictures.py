"""Plots without a plotting library: lines and areas as SVG, maps as PNG.

An SVG stretches to the width of the page. Its labels are HTML outside the SVG, so that they stay
readable on a phone.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.results.report.markup import Html, element, join

_WIDTH, _HEIGHT = 1000.0, 300.0
_MOST_POINTS = 500  # per line
MOST_PIXELS = 400  # per side of a map
COLORS = 8  # number of line colors in the style sheet
_MAP_STOPS = ((38, 20, 72), (49, 82, 141), (33, 145, 140), (111, 200, 96), (250, 230, 70))
_KINDS = (
    (68, 119, 170),
    (238, 102, 119),
    (34, 136, 51),
    (204, 187, 68),
    (102, 204, 238),
    (170, 51, 119),
    (187, 187, 187),
    (238, 153, 51),
    (51, 34, 136),
    (153, 221, 187),
)


def lines(
    x: NDArray[np.float64],
    series: NDArray[np.float64],
    label: str,
    ends: tuple[str, str, str],
    tick: Callable[[float], str],
) -> Html:
    """Plot one line per row of `series`; `ends` label the x axis left, middle and right."""
    low, high = float(series.min()), float(series.max())
    pad = max(0.04 * (high - low), 1e-6 * abs(high)) or 0.5
    low, high = low - pad, high + pad
    reach = max(float(x[-1] - x[0]), 1e-300)
    drawn = []
    for number, row in enumerate(series):
        places = _kept_places(row)
        across = (x[places] - x[0]) / reach * _WIDTH
        down = (high - row[places]) / (high - low) * _HEIGHT
        drawn.append(element("path", d=_path(across, down), class_=f"line c{number % COLORS}"))
    ticks = [t for t in _ticks(low, high) if low <= t <= high]
    rules = [
        element("path", d=f"M0 {_y(t, low, high):.1f}H{_WIDTH:.0f}", class_="rule") for t in ticks
    ]
    labels = [
        element("span", tick(t), style=f"top:{100 * (high - t) / (high - low):.2f}%") for t in ticks
    ]
    picture = _svg(label, *rules, *drawn)
    return _frame(picture, labels, ends)


def area(
    whole: NDArray[np.float64], chains: NDArray[np.float64], label: str, ends: tuple[str, str, str]
) -> Html:
    """Plot a filled curve, with one thin line per chain."""
    high = max(float(chains.max()), float(whole.max()), 1e-300) * 1.05
    across = np.linspace(0, _WIDTH, len(whole))
    body = _path(across, (1 - whole / high) * _HEIGHT) + f"L{_WIDTH:.0f} 300L0 300Z"
    thin = [
        element(
            "path",
            d=_path(across, (1 - row / high) * _HEIGHT),
            class_=f"line thin c{number % COLORS}",
        )
        for number, row in enumerate(chains)
    ]
    return _frame(_svg(label, element("path", d=body, class_="area"), *thin), [], ends)


def columns(counts: NDArray[np.int64], label: str, ends: tuple[str, str, str]) -> Html:
    """Plot a histogram."""
    high = max(int(counts.max()), 1)
    return _bars(counts / high, f"{high:,}", label, ends)


def shares(values: NDArray[np.float64], label: str, ends: tuple[str, str, str]) -> Html:
    """Plot one column per share, from 0 to 100%."""
    return _bars(values, "100%", label, ends)


def _bars(heights: NDArray[np.float64], most: str, label: str, ends: tuple[str, str, str]) -> Html:
    """Plot columns of heights from 0 to 1; `most` labels the height 1."""
    width = _WIDTH / len(heights)
    gap = min(4.0, 0.4 * width)
    bars = [
        element(
            "rect",
            x=f"{place * width + gap / 2:.1f}",
            width=f"{width - gap:.1f}",
            y=f"{(1 - height) * _HEIGHT:.1f}",
            height=f"{height * _HEIGHT:.1f}",
            class_="column",
        )
        for place, height in enumerate(heights.tolist())
    ]
    side = [element("span", most, style="top:0%"), element("span", "0", style="top:100%")]
    return _frame(_svg(label, *bars), side, ends)


def heat(values: NDArray[Any], low: float, high: float, label: str, style: str = "map") -> Html:
    """Draw a map of numbers from dark (low) to bright (high)."""
    scaled = (values - low) / ((high - low) or 1.0)
    levels = np.clip(np.rint(scaled * 63), 0, 63).astype(np.uint8)
    stops = np.linspace(0, 63, len(_MAP_STOPS))
    palette = np.stack(
        [np.interp(np.arange(64), stops, [c[k] for c in _MAP_STOPS]) for k in range(3)], axis=1
    )
    return _map(levels, palette.astype(np.uint8), label, style)


def kinds(values: NDArray[Any], label: str) -> Html:
    """Draw a map of values with one color per value; at most `len(kind_colors())` values."""
    return _map(values.astype(np.uint8), np.array(_KINDS, dtype=np.uint8), label)


def kind_colors() -> list[str]:
    """Return the colors of `kinds`, for its legend."""
    return [f"rgb({r},{g},{b})" for r, g, b in _KINDS]


def scale(low: str, high: str) -> Html:
    """Return the legend of `heat`."""
    stops = ",".join(f"rgb({r},{g},{b})" for r, g, b in _MAP_STOPS)
    bar = element("i", style=f"background:linear-gradient(90deg,{stops})")
    return element("p", element("span", low), bar, element("span", high), class_="scale")


def shrink(values: NDArray[Any], most: int = MOST_PIXELS) -> NDArray[Any]:
    """Select evenly spaced rows and columns, at most `most` of each."""
    for axis, length in enumerate(values.shape):
        if length > most:
            chosen = np.linspace(0, length - 1, most).astype(int)
            values = np.take(values, chosen, axis=axis)
    return values


def _map(
    levels: NDArray[np.uint8], palette: NDArray[np.uint8], label: str, style: str = "map"
) -> Html:
    source = "data:image/png;base64," + base64.b64encode(_png(levels, palette)).decode()
    return element("img", src=source, alt=label, class_=style)


def _png(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Encode a PNG with a palette: signature, header, palette, packed rows, end."""
    height, width = levels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in levels)  # each row unfiltered
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    packed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _kept_places(row: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the points to draw: all of a short line, else the extremes of short intervals."""
    if len(row) <= _MOST_POINTS:
        return np.arange(len(row))
    edges = np.linspace(0, len(row), _MOST_POINTS // 2 + 1).astype(int)
    places = [
        begin + offset
        for begin, end in pairwise(edges)
        for offset in sorted({int(row[begin:end].argmin()), int(row[begin:end].argmax())})
    ]
    return np.array(places)


def _path(across: NDArray[np.float64], down: NDArray[np.float64]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(across, down, strict=True))


def _y(value: float, low: float, high: float) -> float:
    return (high - value) / (high - low) * _HEIGHT


def _ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return round numbers between two others."""
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(f * size for f in (1, 2, 5, 10) if f * size >= rough)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _svg(label: str, *children: Html) -> Html:
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _frame(picture: Html, side: Sequence[Html], ends: tuple[str, str, str]) -> Html:
    left = element("div", *side, class_="side", aria_hidden="true") if side else Html("")
    below = element("div", join(*(element("span", end) for end in ends)), class_="ends")
    return element("div", left, picture, below, class_="plot" if side else "plot bare")
