"""The result of `mg.learn_structure`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.formats import write
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.inference.many import infer_many
from minigibbs.results import plots
from minigibbs.results.answers import Answers
from minigibbs.results.report.markup import element, join, name, table
from minigibbs.structure.table import Codes
from minigibbs.system.boundary import checked
from minigibbs.system.text import printable

_SHOWN = 12  # edges in the printed summary
_MOST_DRAWN = 60  # maximum number of names in a figure


class Edge(NamedTuple):
    """An edge between two columns.

    Attributes
    ----------
    source : str
        The parent if edges have a direction.
    target : str
        The other column.
    strength : float
        Contribution of the edge to the score, in units of log-likelihood.
    confidence : float or None
        Share of the bootstrap replicates with the edge; None without replicates.
    direction : float or None
        Share of these replicates whose edge leads from source to target.
    compelled : bool
        Whether the data, or rules, determine the direction.

    Examples
    --------
    >>> import minigibbs as mg
    >>> found = mg.learn_structure({"a": [0, 1] * 50, "b": [0, 1] * 50}, progress=False)
    >>> found.edges[0].source, found.edges[0].target
    ('a', 'b')
    """

    source: str
    target: str
    strength: float
    confidence: float | None
    direction: float | None
    compelled: bool


@checked(LearnError, init=False)
@dataclass(frozen=True, eq=False)
class Structure:
    """The result of `mg.learn_structure`: a graph with fitted parameters, and its edges.

    Attributes
    ----------
    graph : FactorGraph
        The graph with fitted parameters.
    edges : tuple of Edge
        The edges: `source`, `target`, `strength`, `confidence`, `direction`, `compelled`.
    method : str
        "tree", "pairwise" or "network".
    score_name : str
        "bic", "bdeu", "likelihood" or "ebic".
    score : float
        The score of the structure.
    rows : int
        Rows of the table.
    steps : int
        Steps of the search.
    ended : str
        Why the search ended.
    seconds : float
        Time of learning.
    seed : int
        The seed.
    replicates : int
        Number of bootstrap replicates.
    missing : float
        Share of missing cells.
    warnings : tuple of str
        Possible problems with the structure.
    tables : mapping
        Conditional tables by column: names of the parents, and probabilities.

    Examples
    --------
    >>> import minigibbs as mg, numpy as np
    >>> rain = np.random.default_rng(1).random(500) < 0.4
    >>> wet = rain ^ (np.random.default_rng(2).random(500) < 0.1)
    >>> found = mg.learn_structure({"rain": rain, "wet": wet}, progress=False)
    >>> [(edge.source, edge.target) for edge in found.edges]
    [('rain', 'wet')]
    >>> found.conditional("wet")[0], found.conditional("wet")[1].shape
    (('rain',), (2, 2))
    """

    graph: FactorGraph
    edges: tuple[Edge, ...]
    method: str
    score_name: str
    score: float
    rows: int
    steps: int
    ended: str
    seconds: float
    seed: int
    replicates: int
    missing: float
    warnings: tuple[str, ...] = ()
    tables: Mapping[str, tuple[tuple[str, ...], NDArray[np.float64]]] = field(
        default_factory=dict, repr=False
    )
    codes: Codes | None = field(default=None, repr=False)  # the encoding of columns, without rows

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the graph's variables."""
        return tuple(self.graph.domains.name(v) for v in range(len(self.graph)))

    @property
    def directed(self) -> bool:
        """Whether the structure is directed: a tree or a Bayesian network."""
        return self.method != "pairwise"

    def parents(self, column: str) -> tuple[str, ...]:
        """Return the parents of a column of a tree or a network.

        Parameters
        ----------
        column : str
            The column.

        Returns
        -------
        tuple of str
            Names of the parents.

        Raises
        ------
        LearnError
            If the column is unknown, or the structure has no directions.
        """
        return self.conditional(column)[0]

    def conditional(self, column: str) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Return the conditional probabilities of a column of a tree or a network.

        Parameters
        ----------
        column : str
            A column of a tree or a network.

        Returns
        -------
        tuple
            The names of the parents; an array with one axis per parent and the last axis for the
            column.

        Raises
        ------
        LearnError
            If the column is unknown, or the structure has no directions.
        """
        if not self.directed:
            raise LearnError(
                'a structure of method="pairwise" has no parents; use structure.graph.parameters'
            )
        if column not in self.tables:
            raise LearnError(f"there is no column {column!r}")
        return self.tables[column]

    def encode(self, frame: Any) -> NDArray[np.int64]:
        """Convert the rows of a frame to states of the graph.

        Parameters
        ----------
        frame : frame, mapping or array
            Some or all of the columns that the structure was learned from. Numbers get the same
            bins as in learning.

        Returns
        -------
        ndarray of int
            [row, variable] indices of values, -1 if a cell is missing, its value is unknown, or the
            frame has no such column.
        """
        assert self.codes is not None
        return self.codes.rows_of(frame)

    def infer_many(self, frame: Any) -> Answers:
        """Compute the exact distribution of each cell given the other cells of its row.

        Parameters
        ----------
        frame : frame, mapping or array
            Some or all of the columns that the structure was learned from. Numbers get the same
            bins as in learning. Missing cells and unknown values are unobserved.

        Returns
        -------
        Answers
            Marginals, log Z and log-probabilities by row, as from `mg.infer_many`.

        Examples
        --------
        >>> import minigibbs as mg
        >>> rows = {"rain": ["no", "yes"] * 50, "street": ["dry", "wet"] * 50}
        >>> found = mg.learn_structure(rows, progress=False)
        >>> answers = found.infer_many({"rain": [None], "street": ["wet"]})
        >>> answers.marginal("rain").round(2).tolist()
        [[0.0, 1.0]]
        """
        codes = self.encode(frame)
        return infer_many(self.graph, np.where(codes == FREE, np.nan, codes), progress=False)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a file: `.bif` for trees and networks, or any format of `mg.write`.

        Parameters
        ----------
        path : str or path
            The file. The ending of the name decides the format.
        """
        write(self.graph, path)

    def __str__(self) -> str:
        lines = [f"{label:<12}{value}" for label, value in self.summary_rows()]
        lines += [f"{'':<12}{printable(self._line(edge))}" for edge in self._strongest()]
        more = len(self.edges) - _SHOWN
        lines += [f"{'':<12}and {more:,} weaker edges, in .edges"] if more > 0 else []
        return "\n".join(lines) + "".join(f"\nwarning: {text}" for text in self.warnings)

    def summary_rows(self) -> list[tuple[str, str]]:
        """The rows of the table that is shown: label and value."""
        steps = "step" if self.steps == 1 else "steps"
        rows = [
            ("method", self.method),
            ("columns", f"{len(self.graph):,}"),
            ("rows", f"{self.rows:,}" + self._missing()),
            ("ended", f"{self.ended} after {self.steps:,} {steps}, {self.seconds:.2f} s"),
            ("score", f"{self.score:.6g} ({self.score_name})"),
            ("edges", f"{len(self.edges):,} (in brackets: contribution to the score)"),
        ]
        if self.replicates:
            rows.append(("bootstrap", f"{self.replicates:,} replicates"))
        return rows

    def _missing(self) -> str:
        return f", {self.missing:.1%} of the cells missing" if self.missing else ""

    def _strongest(self) -> list[Edge]:
        return sorted(self.edges, key=lambda edge: -edge.strength)[:_SHOWN]

    def _line(self, edge: Edge) -> str:
        arrow = "->" if edge.compelled else "--"
        known = "" if edge.confidence is None else f", confidence {edge.confidence:.2f}"
        return f"{edge.source} {arrow} {edge.target} ({edge.strength:.3g}{known})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the graph and its parameters as numbers and text for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        plain = ("method", "score_name", "score", "rows", "steps", "ended", "seconds", "seed")
        return {
            **{key: getattr(self, key) for key in plain},
            "replicates": self.replicates,
            "missing": self.missing,
            "edges": [edge._asdict() for edge in self.edges],
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        """Return the summary and the strongest edges as HTML for notebooks."""
        rows: list[list[object]] = [[label, value] for label, value in self.summary_rows()]
        lines: list[list[object]] = []
        for edge in self._strongest():
            known = "" if edge.confidence is None else f"{edge.confidence:.2f}"
            arrow = "→" if edge.compelled else "—"
            between = join(name(edge.source), f" {arrow} ", name(edge.target))
            lines.append([between, f"{edge.strength:.3g}", known])
        head = ["edge", "strength", "confidence"]
        notes = [element("p", element("b", "warning: "), text) for text in self.warnings]
        return str(join(table(["", ""], rows), table(head, lines), *notes))

    def plot(self, path: str | os.PathLike[str] | None = None, *, axes: Any = None) -> Any:
        """Draw the graph.

        Columns are placed in layers from parents to children, or on a circle for
        method="pairwise". The width of an edge is its confidence, or its strength relative to the
        strongest edge. An arrow shows a direction that the data determine.

        Parameters
        ----------
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
            side = float(np.clip(0.35 * len(self.graph), 5.0, 14.0))
            axes = plots.figure(1, width=side, height=0.8 * side)[1][0]
        place = self._places()
        strongest = max((edge.strength for edge in self.edges), default=1.0)
        for edge in self.edges:
            share = edge.confidence
            if share is None:
                share = np.clip(edge.strength / strongest, 0.1, 1.0) if strongest > 0 else 1.0
            axes.annotate(
                "",
                place[edge.target],
                place[edge.source],
                arrowprops={
                    "arrowstyle": "->" if edge.compelled else "-",
                    "linewidth": 0.4 + 2.0 * float(share),
                    "color": "tab:blue",
                    "alpha": 0.3 + 0.6 * float(share),
                    "shrinkA": 9,
                    "shrinkB": 9,
                    "connectionstyle": f"arc3,rad={self._bend(edge, place)}",
                },
            )
        spots = np.array([place[one] for one in self.names])
        axes.plot(spots[:, 0], spots[:, 1], "o", color="0.85", markersize=14, zorder=1)
        if len(self.names) <= _MOST_DRAWN:
            for one in self.names:
                axes.text(*place[one], printable(one), ha="center", va="center", fontsize=7)
        axes.set_title(f"{len(self.edges):,} edges of {len(self.names):,} columns")
        axes.margins(0.1)
        axes.set_axis_off()
        return plots.done(axes.figure, path)

    def _bend(self, edge: Edge, place: dict[str, tuple[float, float]]) -> float:
        """Return the curvature of an edge: edges that pass a layer are bent around its columns."""
        layers = abs(place[edge.source][1] - place[edge.target][1])
        return 0.3 if self.directed and layers > 1 else 0.0

    def _places(self) -> dict[str, tuple[float, float]]:
        """Return the position of each column in the figure."""
        if not self.directed:
            angles = np.linspace(0, 2 * np.pi, len(self.names), endpoint=False)
            spots = zip(np.cos(angles).tolist(), np.sin(angles).tolist(), strict=True)
            return dict(zip(self.names, spots, strict=True))
        depth: dict[str, int] = {}
        waiting = list(self.names)
        while waiting:
            one = waiting.pop(0)
            above = self.tables[one][0]
            if all(parent in depth for parent in above):
                depth[one] = 1 + max((depth[parent] for parent in above), default=-1)
            else:
                waiting.append(one)
        layers: dict[int, list[str]] = {}
        for one in self.names:
            layers.setdefault(depth[one], []).append(one)
        found: dict[str, tuple[float, float]] = {}
        for level, members in sorted(layers.items()):
            mean = {
                one: np.mean([found[p][0] for p in self.tables[one][0]]) if level else 0.0
                for one in members
            }
            order = sorted(members, key=lambda one: float(mean[one]))
            for k, one in enumerate(order):
                found[one] = ((k + 1) / (len(order) + 1), -float(level))
        return found
