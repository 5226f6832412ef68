"""The result of `mg.repair`: probably wrong cells, and their corrections."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs._version import __version__
from minigibbs.errors import LearnError
from minigibbs.repairing.features import Candidates
from minigibbs.repairing.model import Model, best
from minigibbs.repairing.table import MISSING, Table
from minigibbs.results import plots
from minigibbs.results.report import page
from minigibbs.results.report.markup import Html, element, join, table
from minigibbs.results.summary import for_json
from minigibbs.system.boundary import checked
from minigibbs.system.files import write_whole
from minigibbs.system.frames import column_of, frame_like, names_of, with_cells
from minigibbs.system.text import printable

_SHOWN = 12
_HEAD = ("row", "column", "before", "after", "probability")
_CELLS = ("all", "present", "missing")
_MOSTLY = 0.5  # share of different cells that suggests different types
_LISTED = 1000  # maximum number of cells on an HTML page


class Scores(NamedTuple):
    """The quality of a repair if the true table is known.

    Attributes
    ----------
    precision : float
        Share of the changed cells that are right after the repair.
    recall : float
        Share of the wrong cells that are right after the repair.
    f1 : float
        Harmonic mean of precision and recall.
    changed : int
        Number of changed cells.
    wrong : int
        Number of cells that were wrong.

    Examples
    --------
    >>> import minigibbs as mg
    >>> rows = {"zip": ["1", "2"] * 20, "city": ["Rome", "Oslo"] * 20}
    >>> rows["city"][4] = "Romx"
    >>> mg.repair(rows).scores({"zip": ["1", "2"] * 20, "city": ["Rome", "Oslo"] * 20}).f1
    1.0
    """

    precision: float
    recall: float
    f1: float
    changed: int
    wrong: int


@checked(LearnError, init=False)
@dataclass(frozen=True, eq=False)
class RepairedTable:
    """The result of `mg.repair`.

    Attributes
    ----------
    frame : frame
        The repaired table, of the same library as the given table.
    cells : frame
        One row per changed cell: `row`, `column`, `before`, `after`, `probability`, in order of
        decreasing probability.

    Examples
    --------
    >>> import minigibbs as mg
    >>> rows = {"zip": ["1", "2"] * 20, "city": ["Rome", "Oslo"] * 20}
    >>> rows["city"][4] = "Romx"
    >>> found = mg.repair(rows)
    >>> found.cells["after"].tolist(), found.frame["city"][4]
    (['Rome'], 'Rome')
    """

    given: Any = field(repr=False)
    table: Table = field(repr=False)
    model: Model = field(repr=False)
    candidates: Candidates = field(repr=False)
    probability: NDArray[np.float64] = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)  # [row, column] after the repair
    labels: Mapping[tuple[int, int], int] = field(repr=False)

    @cached_property
    def frame(self) -> Any:
        """The repaired table."""
        cells = {}
        for column, name in enumerate(self._names):
            rows = np.flatnonzero(self.codes[:, column] != self.table.codes[:, column])
            if len(rows):
                values = self.entries(column, self.codes[rows, column])
                cells[name] = (rows, values)
        return with_cells(self.given, cells, error=LearnError)

    @cached_property
    def _names(self) -> list[Any]:
        return names_of(self.given)

    @cached_property
    def cells(self) -> Any:
        """The changed cells, one per row, the most certain first."""
        row, column, certain = self._changed()
        names, before, after = self.table.names, [], []
        for r, c in zip(row.tolist(), column.tolist(), strict=True):
            before += self.entries(c, self.table.codes[[r], c])
            after += self.entries(c, self.codes[[r], c])
        return frame_like(
            self.given,
            {
                "row": row,
                "column": _objects([names[c] for c in column.tolist()]),
                "before": _objects(before),
                "after": _objects(after),
                "probability": certain,
            },
        )

    def _changed(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return row, column and probability of the changed cells, the most certain first."""
        row, column = np.nonzero(self.codes != self.table.codes)
        certain = self.certainty[row, column]
        order = np.lexsort((column, row, -certain))
        return row[order], column[order], certain[order]

    @cached_property
    def certainty(self) -> NDArray[np.float64]:
        """[row, column] the probability of each cell's value after the repair.

        Too low for cells that stay where several values fit a row equally well.
        """
        found = np.ones(self.table.codes.shape)
        some = self.candidates
        chosen = some.value == self.codes[some.row, some.column][some.cell]
        found[some.row[some.cell[chosen]], some.column[some.cell[chosen]]] = self.probability[
            chosen
        ]
        for place in self.labels:
            found[place] = 1.0
        return found

    @property
    def suspicion(self) -> NDArray[np.float64]:
        """[row, column] the probability that each given cell is wrong; 1 if missing.

        It ranks cells. It is too high where several values fit a row equally well: `calibration`
        with `cells="all"` measures by how much.
        """
        found = (self.table.codes == MISSING).astype(np.float64)
        some = self.candidates
        own = np.bincount(some.cell, self.probability * some.own, minlength=len(some.row))
        found[some.row, some.column] = 1.0 - own
        for (row, column), code in self.labels.items():
            found[row, column] = float(code != self.table.codes[row, column])
        clipped: NDArray[np.float64] = np.clip(found, 0.0, 1.0)
        return clipped

    @property
    def dependencies(self) -> list[tuple[str, float]]:
        """The approximate functional dependencies found, and the share of errors each explains."""
        names = self.table.names
        return [
            (f"{names[one.given]} -> {names[one.column]}", float(one.explained))
            for one in self.model.found
        ]

    @property
    def weights(self) -> Any:
        """The learned weights: one row per weight with its kind, its subject and its value."""
        places = list(self.model.featurizer.weights.places)[: len(self.model.weights)]
        return frame_like(
            self.given,
            {
                "kind": _objects([place.kind for place in places]),
                "entry": _objects([place.entry for place in places]),
                "weight": self.model.weights,
            },
        )

    def scores(
        self, clean: Any, columns: Sequence[str] | None = None, cells: str = "all"
    ) -> Scores:
        """Compute precision, recall and F1 against the true table.

        Numbers are compared with their texts: 10115 and "10115" are one value.

        Parameters
        ----------
        clean : frame
            The true table, with the same rows and columns.
        columns : list of str, optional
            The columns to score. By default those whose cells may be wrong (`columns=` of
            `mg.repair`), and those with labels.
        cells : {"all", "present", "missing"}, default "all"
            "present": only cells that had a value, which measures repairs. "missing": only cells
            that had none, which measures how they were filled.

        Returns
        -------
        Scores
            `precision`, `recall`, `f1`, `changed` and `wrong`.

        Raises
        ------
        LearnError
            If the rows or columns differ.
        """
        some = self._scored(columns)
        if cells not in _CELLS:
            raise LearnError(f"cells must be one of {', '.join(_CELLS)}; got {cells!r}")
        truth, before, after = (codes[:, some] for codes in self._against(clean))
        counted = np.ones(before.shape, dtype=np.bool_)
        if cells != "all":
            counted = (before == MISSING) == (cells == "missing")
        changed, wrong = (after != before) & counted, (before != truth) & counted
        right = int((changed & (after == truth)).sum())
        precision = right / max(int(changed.sum()), 1)
        recall = right / max(int(wrong.sum()), 1)
        f1 = 2 * precision * recall / max(precision + recall, 1e-12)
        return Scores(precision, recall, f1, int(changed.sum()), int(wrong.sum()))

    def _scored(self, columns: Sequence[str] | None = None) -> list[int]:
        """Return the numbers of the columns to score."""
        if columns is not None:
            return [self.table.index(name, "columns") for name in columns]
        return sorted({*self.model.columns, *(column for _, column in self.labels)})

    def calibration(self, clean: Any, bins: int = 10, cells: str = "changed") -> Any:
        """Compare the predicted probabilities of cells with the share that is right.

        Parameters
        ----------
        clean : frame
            The true table, with the same rows and columns.
        bins : int, default 10
            Number of bins, of equal counts.
        cells : {"changed", "all"}, default "changed"
            The changed cells, or all cells of the columns that `scores` counts.

        Returns
        -------
        frame
            One row per bin: `probability` (mean), `right` (share), `count`.

        Raises
        ------
        LearnError
            If the rows or columns differ.
        """
        if bins < 1:
            raise LearnError(f"bins must be at least 1, got {bins}")
        if cells not in ("changed", "all"):
            raise LearnError(f'cells must be "changed" or "all", got {cells!r}')
        truth, before, after = self._against(clean)
        counted = after != before
        if cells == "all":
            counted[:, self._scored()] = True
        stated, right = self.certainty[counted], (after == truth)[counted]
        order = np.argsort(stated, kind="stable")
        parts = np.array_split(order, min(bins, len(order))) if len(order) else []
        return frame_like(
            self.given,
            {
                "probability": np.array([stated[part].mean() for part in parts]),
                "right": np.array([right[part].mean() for part in parts]),
                "count": np.array([len(part) for part in parts], dtype=np.int64),
            },
        )

    def plot_calibration(
        self, clean: Any, path: str | os.PathLike[str] | None = None, *, axes: Any = None
    ) -> Any:
        """Draw the calibration curve.

        Parameters
        ----------
        clean : frame
            The true table, with the same rows and columns.
        path : str or path, optional
            File to write the figure to.
        axes : matplotlib.axes.Axes, optional
            Axes to draw on. By default new ones.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which notebooks show.
        """
        plots.check_axes(axes, LearnError)
        if axes is None:
            axes = plots.figure(1, width=5.0, height=4.6)[1][0]
        found = self.calibration(clean)
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        stated, right = column_of(found, "probability"), column_of(found, "right")
        axes.plot(stated, right, "o-", color="tab:blue")
        axes.set(
            xlabel="stated probability of a repair",
            ylabel="share that is right",
            title="Calibration of repairs",
        )
        return plots.done(axes.figure, path)

    def _against(
        self, clean: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return codes of the truth, of the table and of its repair; equal texts have one code."""
        truth = self.table.read(clean, "clean")
        if len(truth) != len(self.table):
            raise LearnError(f"clean must have {len(self.table):,} rows, got {len(truth):,}")
        found = tuple(np.empty_like(truth.codes) for _ in range(3))
        for column, values in enumerate(truth.values):
            number: dict[Any, int] = {}
            shared = [number.setdefault(_canonical(value), len(number)) for value in values]
            place = np.array([*shared, MISSING], dtype=np.int64)
            for codes, own in zip(found, (truth.codes, self.table.codes, self.codes), strict=True):
                codes[:, column] = place[own[:, column]]
            self._warn_of_types(column, found[0][:, column], found[1][:, column], values)
        return found[0], found[1], found[2]

    def _warn_of_types(
        self,
        column: int,
        truth: NDArray[np.int64],
        before: NDArray[np.int64],
        values: tuple[Any, ...],
    ) -> None:
        """Warn of a column that is text in one table and numbers in the other, and differs."""
        present = (truth != MISSING) & (before != MISSING)
        if not present.any() or np.mean(truth[present] != before[present]) < _MOSTLY:
            return
        own = {isinstance(value, str) for value in self.table.values[column]}
        if {isinstance(value, str) for value in values} != own:
            warnings.warn(
                f"clean: column {self.table.names[column]!r} is text in one table and numbers in "
                "the other, and most cells differ, as 01067 and 1067 do. Read both tables as text, "
                "such as pandas.read_csv(path, dtype=str)",
                stacklevel=4,
            )

    def entries(self, column: int, codes: NDArray[np.int64]) -> list[Any]:
        """The values of codes of a column; None for a missing cell."""
        values = self.table.values[column]
        return [None if code == MISSING else values[code] for code in codes.tolist()]

    def _counts(self) -> tuple[int, int]:
        """Return the numbers of changed cells, and of those that were missing before."""
        changed = self.codes != self.table.codes
        return int(changed.sum()), int((changed & (self.table.codes == MISSING)).sum())

    def summary_rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed table: label and value."""
        changed, filled = self._counts()
        rows, columns = self.codes.shape
        return [
            ("table", f"{rows:,} rows, {columns:,} columns"),
            ("changed", f"{changed:,} cells, {filled:,} of them missing before"),
            ("labels", f"{len(self.labels):,} cells"),
            ("found", f"{len(self.model.found):,} approximate functional dependencies"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return a summary for JSON.

        Returns
        -------
        dict
            `rows`, `columns`, `labels`, `dependencies` and `changes`, one entry per changed cell.
        """
        rows, columns = self.codes.shape
        cells = (column_of(self.cells, name).tolist() for name in _HEAD)
        return {
            "rows": rows,
            "columns": columns,
            "labels": len(self.labels),
            "dependencies": dict(self.dependencies),
            "changes": [
                dict(zip(_HEAD, map(for_json, change), strict=True))
                for change in zip(*cells, strict=True)
            ],
        }

    def __str__(self) -> str:
        lines = [f"{label:<12}{value}" for label, value in self.summary_rows()]
        shown = self._lines(_SHOWN)
        if shown:
            rows = [list(_HEAD), *shown]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            cells = ([one.ljust(w) for one, w in zip(row, widths, strict=True)] for row in rows)
            lines += ["", *("  ".join(row).rstrip() for row in cells)]
        return "\n".join(lines)

    def _lines(self, most: int) -> list[list[str]]:
        """Return the most certain changes as text."""
        found = []
        for row, column, certain in zip(*(one.tolist() for one in self._changed()), strict=True):
            before = self.entries(column, self.table.codes[[row], column])[0]
            after = self.entries(column, self.codes[[row], column])[0]
            found.append(
                [
                    f"{row:,}",
                    printable(self.table.names[column]),
                    "(missing)" if before is None else printable(before),
                    printable(after),
                    f"{certain:.4f}",
                ]
            )
            if len(found) == most:
                break
        return found

    def _repr_html_(self) -> str:
        return str(join(*self._page(_SHOWN)))

    def _page(self, most: int) -> list[Any]:
        rows: list[list[object]] = [[label, value] for label, value in self.summary_rows()]
        lines: list[list[object]] = [list(line) for line in self._lines(most)]
        return [table(["", ""], rows), table(list(_HEAD), lines)]

    def report(self, path: str | os.PathLike[str], clean: Any = None) -> None:
        """Write a standalone HTML page with changed cells, dependencies and scores.

        Parameters
        ----------
        path : str or path
            The file to write.
        clean : frame, optional
            The true table. The page then has scores and the calibration of probabilities.
        """
        rows, columns = self.codes.shape
        changed, filled = self._counts()
        facts = {
            "repaired cells": changed - filled,
            "filled cells": filled,
            "labeled cells": len(self.labels),
            "dependencies": len(self.model.found),
        }
        tiles = [
            element("div", element("dt", label), element("dd", f"{count:,}"))
            for label, count in facts.items()
        ]
        parts = [
            element("dl", *tiles, class_="facts"),
            *_section("Changed cells", _HEAD, self._lines(_LISTED)),
            *_section(
                "Dependencies",
                ("dependency", "share of errors explained"),
                [[name, f"{share:.2f}"] for name, share in self.dependencies],
            ),
        ]
        if clean is not None:
            parts += self._against_truth(clean)
        text = page("Repaired table", f"{rows:,} rows, {columns:,} columns", __version__, *parts)
        write_whole(path, lambda stream: stream.write(text.encode("utf-8", "xmlcharrefreplace")))

    def _against_truth(self, clean: Any) -> list[Html]:
        """Return the scores and the calibration of probabilities as tables."""
        got = [self.scores(clean, cells=which) for which in _CELLS]
        scores = [
            [name, *(f"{getattr(one, name):.3f}" for one in got)]
            for name in ("precision", "recall", "f1")
        ]
        curve = self.calibration(clean)
        columns = [column_of(curve, name).tolist() for name in ("probability", "right", "count")]
        bins = [[f"{a:.3f}", f"{b:.3f}", f"{c:,}"] for a, b, c in zip(*columns, strict=True)]
        return [
            *_section("Scores", ("score", "all cells", "repaired", "filled"), scores),
            *_section("Calibration", ("stated probability", "share right", "cells"), bins),
        ]

    def best(self) -> NDArray[np.int64]:
        """[row, column] codes of the most probable values, of any probability."""
        codes = self.table.codes.copy()
        top = best(self.candidates, self.probability)
        codes[self.candidates.row, self.candidates.column] = self.candidates.value[top]
        return codes


def _section(title: str, head: Sequence[str], lines: Sequence[Sequence[object]]) -> list[Html]:
    """Return a heading and a table of text."""
    whole = table(list(head), [list(line) for line in lines], class_="text")
    return [element("h2", title), element("div", whole, class_="wide")]


def _canonical(value: Any) -> Any:
    """Return a value as text if it is a number, so that 7, 7.0 and "7" are equal.

    >>> _canonical(7.0), _canonical(0.5), _canonical("07")
    ('7', '0.5', '07')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else value


def _objects(entries: list[Any]) -> NDArray[Any]:
    column = np.empty(len(entries), dtype=object)
    column[:] = entries
    return column
