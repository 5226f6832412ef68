"""The function `learn_structure`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import LearnError
from minigibbs.graph.domains import Domains, Grid
from minigibbs.graph.graph import FactorGraph
from minigibbs.running import durations
from minigibbs.running.request import check_counts, entropy_of
from minigibbs.structure.bootstrap import confidences
from minigibbs.structure.chow_liu import chow_liu
from minigibbs.structure.completion import Completion
from minigibbs.structure.conditionals import conditional_tables, network_graph
from minigibbs.structure.counting import MOST_CELLS, Counter, Scoring
from minigibbs.structure.equivalence import compelled
from minigibbs.structure.hill_climbing import hill_climbing
from minigibbs.structure.learned import Learned, Rules
from minigibbs.structure.pairwise import pairwise, pairwise_graph
from minigibbs.structure.pooling import hidden_by_rare_values, pooled
from minigibbs.structure.scores import BIC, SCORES
from minigibbs.structure.structure import Edge, Structure
from minigibbs.structure.table import Codes, read_table
from minigibbs.system.boundary import checked
from minigibbs.system.caller import warn
from minigibbs.system.progress import Stage
from minigibbs.system.watch import Watch

METHODS = ("tree", "pairwise", "network")
_SCORES = {"tree": ("bic", "likelihood"), "network": ("bic", "bdeu"), "pairwise": ("ebic",)}
_ROUNDS = 15  # rounds of stochastic EM
_RESTARTS = 10  # default rounds of further climbs
_MOST_REPLICATES = 10**6  # of the bootstrap: standard errors of at most 0.0005
_FEW_CELLS, _FEW_ROWS = 1_000_000, 1_000  # sample size for searching large tables
_DRAWS = 5  # completed tables over which the final parameters are averaged


@checked(LearnError)
def learn_structure(
    frame: Any,
    method: str = "tree",
    *,
    score: str | None = None,
    bins: int | Grid | Sequence[float] | Mapping[str, Any] | None = None,
    required: Iterable[Sequence[str]] = (),
    forbidden: Iterable[Sequence[str]] = (),
    tiers: Iterable[Sequence[str]] | None = None,
    max_parents: int | None = None,
    equivalent_size: float = 1.0,
    gamma: float = 0.25,
    tabu: int = 10,
    restarts: int | None = None,
    pseudocount: float = 1.0,
    bootstrap: int = 0,
    max_time: str | float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> Structure:
    """Learn a graphical model from a table: which columns depend on each other, and how.

    Parameters
    ----------
    frame : frame, mapping or array
        One row per case, one column per variable: a frame of pandas, Polars or PyArrow, a mapping
        from names to columns, or a two-dimensional array. Columns of an array are called x0, x1 and
        so on. Cells are labels: text, numbers, truth values. None, NaN and masked cells are
        missing.
    method : {"tree", "pairwise", "network"}, default "tree"
        "tree": the best forest, by Chow and Liu. "pairwise": a pairwise Markov network, by
        pseudo-likelihood with a group penalty. "network": a Bayesian network, by hill climbing
        with a tabu list.
    score : str, optional
        The criterion that is maximized. Trees: "bic" (default), which can leave columns
        unconnected, or "likelihood". Networks: "bic" (default) or "bdeu". Pairwise networks:
        "ebic", the extended BIC, which chooses the penalty.
    bins : int, Grid, sequence of float or mapping, optional
        Bins of numeric columns with more than 20 distinct numbers: a number of quantiles, inner
        edges, or a `Grid`. A number belongs to the nearest point of a grid. By default 5 quantiles.
        A mapping gives bins by column; a column that it names is always binned.
    required : list of pairs of str, default ()
        Edges (parent, child) that must be present. Trees and pairwise networks ignore the
        direction.
    forbidden : list of pairs of str, default ()
        Edges (parent, child) that must be absent. Trees and pairwise networks leave a pair out if
        both directions are forbidden.
    tiers : list of lists of str, optional
        Networks: no edge leads from a column to one of an earlier list. Columns in no list are
        unrestricted.
    max_parents : int, optional
        Networks: the largest number of parents of a column.
    equivalent_size : float, default 1.0
        The equivalent sample size of BDeu.
    gamma : float, default 0.25
        The weight of the number of columns in the extended BIC; 0 is the ordinary BIC.
    tabu : int, default 10
        Networks: steps without a better network before a climb ends.
    restarts : int, optional
        Networks: rounds of further climbs. In a round every column in turn loses its edges and gets
        the best edges again. Two rounds without a better network end the search. By default at most
        10 rounds. Tables of more than a million cells then use a random sample of rows for the
        rounds. One climb on all rows starts from the network that they find.
    pseudocount : float, default 1.0
        Trees and networks: total weight of the uniform Dirichlet prior of a conditional table. 0
        gives relative frequencies.
    bootstrap : int, default 0
        Replicates for the confidence in edges, at most a million: the structure is learned again
        from rows that are drawn with replacement.
    max_time : str or float, optional
        Time limit of climbs and replicates: "60s", "5min", "1h", or seconds. By default none.
    seed : int, optional
        Seed of all random draws.
    threads : int, optional
        Number of threads. By default one per processor.
    progress : bool, default True
        Whether to show progress if stderr is a terminal.

    Returns
    -------
    Structure
        `graph` with fitted parameters, `edges` with strengths and confidences, `plot()`.

    Raises
    ------
    LearnError
        If the frame is not a table of at least two rows, a column has no values, or the constraints
        on edges contradict each other.

    Notes
    -----
    Rows with missing cells are used. A tree counts every pair of columns in the rows where both
    cells are present. The other methods run 15 rounds of stochastic EM, starting from the tree. A
    round draws the missing cells from the current model, given the present cells, and learns again.
    Both approaches assume that cells are missing at random.

    With score="bic", values of a column that occur fewer than log2(rows) / 2 times share one code
    while the structure is searched, so that typos do not hide dependencies. The fitted tables have
    all values.

    Examples
    --------
    >>> import minigibbs as mg
    >>> truth = mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2], [1, 2, 3], 0.7)])
    >>> rows = mg.exact_draws(truth, 2000, seed=1)
    >>> found = mg.learn_structure(rows, "network", progress=False)
    >>> sorted(sorted([edge.source, edge.target]) for edge in found.edges)
    [['x0', 'x1'], ['x1', 'x2'], ['x2', 'x3']]
    """
    check_counts(threads=threads)
    score = _check(method, score, equivalent_size, gamma, tabu, restarts, pseudocount, bootstrap)
    limit = None if max_time is None else durations.seconds(max_time, "max_time")
    begun, seed = time.monotonic(), entropy_of(seed)
    with Watch(limit) as watch:
        with Stage("reading data", progress):
            table = read_table(frame, bins)
        rules = _rules(table.domains, method, required, forbidden, tiers, max_parents)
        task = _Task(
            method, SCORES.get(score, BIC), equivalent_size, gamma, tabu, restarts, pseudocount
        )
        with Stage("learning structure", progress), watch.noted():
            learned, graph, tables = task.learn(table, rules, seed, threads, watch)
        given = rules.directions if method == "network" else np.zeros_like(rules.required)
        shares = towards = None
        made = 0
        if bootstrap:
            with Stage("bootstrap", progress), watch.noted():
                shares, towards, made = confidences(
                    table,
                    lambda drawn: task.learn(drawn, rules, seed, threads, watch)[0],
                    bootstrap,
                    np.random.default_rng([seed, bootstrap]),
                    watch,
                    given,
                )
    edge = learned.matrix(table.columns)
    fixed = compelled(edge, given) if learned.directed else np.zeros_like(edge)
    names = [table.domains.name(v) for v in range(table.columns)]
    edges = []
    for (a, b), strength in zip(learned.edges, learned.strengths, strict=True):
        share = towards_b = None
        if shares is not None and towards is not None and made:
            share = float(shares[a, b])
            towards_b = float(towards[a, b]) if learned.directed else None
        edges.append(Edge(names[a], names[b], strength, share, towards_b, bool(fixed[a, b])))
    notes = list(table.notes)
    if learned.ended != "converged":
        notes.append(f"the search was cut short ({learned.ended}): give more time")
    if made < bootstrap:
        notes.append(f"only {made} of {bootstrap} bootstrap replicates were made: give more time")
    if not learned.edges:
        notes += hidden_by_rare_values(table)
    for note in notes[len(table.notes) :]:
        warn(note)
    return Structure(
        graph=graph,
        edges=tuple(edges),
        method=method,
        score_name=score,
        score=learned.score,
        rows=table.rows,
        steps=learned.steps,
        ended=learned.ended,
        seconds=time.monotonic() - begun,
        seed=seed,
        replicates=made,
        missing=float(
            np.mean([np.mean(row == n) for row, n in zip(table.codes, table.sizes, strict=True)])
        ),
        warnings=tuple(notes),
        tables={
            names[child]: (tuple(names[p] for p in own), array)
            for child, (own, array) in enumerate(tables)
        },
        codes=replace(table, codes=table.codes[:, :0].copy()),
    )


Tables = list[tuple[tuple[int, ...], NDArray[np.float64]]]


@dataclass(frozen=True)
class _Task:
    """The settings of a method, and the steps of learning."""

    method: str
    kind: int
    strength: float
    gamma: float
    tabu: int
    restarts: int | None
    pseudocount: float

    def learn(
        self, table: Codes, rules: Rules, seed: int, threads: int | None, watch: Watch
    ) -> tuple[Learned, FactorGraph, Tables]:
        """Return the structure learned from a table, its graph, and any conditional tables."""
        if self.method == "tree":
            return self._tree(table, rules, threads)
        if table.complete:
            learned = self._complete(table, rules, seed, threads, watch)
            return learned, *self._fitted(table, learned, threads)
        return self._with_missing(table, rules, seed, threads, watch)

    def _tree(
        self, table: Codes, rules: Rules, threads: int | None
    ) -> tuple[Learned, FactorGraph, Tables]:
        """Learn a tree; every pair is counted in the rows where both cells are present."""
        few, _ = self._pooled(table)
        if few is not table:  # the fitted tables have all values
            fits = np.outer(table.sizes, table.sizes.astype(np.float64)) <= MOST_CELLS
            rules = replace(rules, allowed=rules.allowed & fits)
        with closing(Counter(few.codes, _counted(few), threads)) as counter:
            learned = chow_liu(counter, few.sizes, self.kind, rules)
        parents = learned.parents(table.columns)
        with closing(Counter(table.codes, _counted(table), threads)) as counter:
            found = conditional_tables(counter, table.sizes, parents, self.pseudocount)
        tables = list(zip(parents, found, strict=True))
        return learned, network_graph(table.domains, parents, found), tables

    def _complete(
        self, table: Codes, rules: Rules, seed: int, threads: int | None, watch: Watch
    ) -> Learned:
        """Learn a structure from a table without missing cells."""
        if self.method == "pairwise":
            with closing(Counter(table.codes, table.sizes, threads)) as counter:
                return pairwise(counter, self.gamma, rules)
        rng, start = np.random.default_rng(seed), None
        rounds = _RESTARTS if self.restarts is None else self.restarts
        few = max(_FEW_CELLS // table.columns, _FEW_ROWS)
        if self.restarts is None and table.rows > few:
            some = table.sampled(few, rng)
            start = self._climbed(some, rules, rounds, rng, threads, watch)
            rounds = 0
        found = self._climbed(table, rules, rounds, rng, threads, watch, start)
        return found if start is None else replace(found, steps=start.steps + found.steps)

    def _climbed(
        self,
        table: Codes,
        rules: Rules,
        rounds: int,
        rng: np.random.Generator,
        threads: int | None,
        watch: Watch,
        start: Learned | None = None,
    ) -> Learned:
        """Learn a network by hill climbing."""
        scoring = Scoring(self.kind, float(self.strength), table.rows)
        first = None if start is None else start.matrix(table.columns)
        few, score = self._pooled(table)
        with closing(Counter(few.codes, few.sizes, threads)) as counter:
            learned = hill_climbing(
                counter, scoring, rules, self.tabu, rounds, rng, watch, first, table.sizes
            )
        return replace(learned, score=learned.score + score)

    def _pooled(self, table: Codes) -> tuple[Codes, float]:
        """Return the table whose structure is scored, and the score of its pools of rare values."""
        return pooled(table) if self.kind == BIC else (table, 0.0)

    def _fitted(
        self, table: Codes, learned: Learned, threads: int | None, more: float = 0.0
    ) -> tuple[FactorGraph, Tables]:
        """Return the graph of a structure, with parameters from a table without missing cells."""
        if self.method == "pairwise":
            return pairwise_graph(table.domains, learned), []
        parents = learned.parents(table.columns)
        with closing(Counter(table.codes, table.sizes, threads)) as counter:
            weight = max(self.pseudocount, more)
            found = conditional_tables(counter, table.sizes, parents, weight)
        return network_graph(table.domains, parents, found), list(zip(parents, found, strict=True))

    def _with_missing(
        self, table: Codes, rules: Rules, seed: int, threads: int | None, watch: Watch
    ) -> tuple[Learned, FactorGraph, Tables]:
        """Run stochastic EM: learn from a completed table, then complete it with the new model."""
        first = replace(self, method="tree", kind=BIC, pseudocount=max(self.pseudocount, 1.0))
        graph = first._tree(table, Rules(rules.allowed, np.zeros_like(rules.required)), threads)[1]
        completion = Completion(table, seed, threads)
        for _ in range(_ROUNDS):
            whole = completion.draw(graph)
            learned = self._complete(whole, rules, seed, threads, watch)
            graph, _ = self._fitted(whole, learned, threads, more=1.0)  # keeps chains ergodic
            if watch.ended:
                break
        if self.method == "pairwise":
            return learned, graph, []
        parents, sums = learned.parents(table.columns), None
        for _ in range(_DRAWS):
            found = [
                array for _, array in self._fitted(completion.draw(graph), learned, threads)[1]
            ]
            sums = found if sums is None else [a + b for a, b in zip(sums, found, strict=True)]
            if watch.ended:
                break
        assert sums is not None
        mean = [array / array.sum(axis=-1, keepdims=True) for array in sums]
        tables = list(zip(parents, mean, strict=True))
        return learned, network_graph(table.domains, parents, mean), tables


def _counted(table: Codes) -> NDArray[np.int64]:
    """Return the number of codes per column: its values, and one more if cells are missing."""
    absent = [bool((row == n).any()) for row, n in zip(table.codes, table.sizes, strict=True)]
    counted: NDArray[np.int64] = table.sizes + np.array(absent, dtype=np.int64)
    return counted


def _check(
    method: str,
    score: str | None,
    equivalent_size: float,
    gamma: float,
    tabu: int,
    restarts: int | None,
    pseudocount: float,
    bootstrap: int,
) -> str:
    """Validate the settings; return the name of the score."""
    if method not in METHODS:
        raise LearnError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    score = _SCORES[method][0] if score is None else score
    if score not in _SCORES[method]:
        known = " or ".join(map(repr, _SCORES[method]))
        raise LearnError(f'score of method="{method}" must be {known}; got {score!r}')
    if not 0 < equivalent_size < math.inf:
        raise LearnError(f"equivalent_size must be positive, got {equivalent_size}")
    least = {"gamma": gamma, "pseudocount": pseudocount, "tabu": tabu}
    least |= {"restarts": restarts or 0, "bootstrap": bootstrap}
    for key, value in least.items():
        if not 0 <= value < math.inf:
            raise LearnError(f"{key} must not be negative, got {value}")
    if bootstrap > _MOST_REPLICATES:
        raise LearnError(f"bootstrap must be at most {_MOST_REPLICATES:,}, got {bootstrap:,}")
    return score


def _rules(
    domains: Domains,
    method: str,
    required: Iterable[Sequence[str]],
    forbidden: Iterable[Sequence[str]],
    tiers: Iterable[Sequence[str]] | None,
    max_parents: int | None,
) -> Rules:
    """Return the constraints on edges as matrices."""
    columns = len(domains)
    if method != "network" and (tiers is not None or max_parents is not None):
        what = "tiers" if tiers is not None else "max_parents"
        raise LearnError(f'{what} is for method="network"')
    if max_parents is not None and max_parents < 0:
        raise LearnError(f"max_parents must not be negative, got {max_parents}")
    allowed = ~np.eye(columns, dtype=np.bool_)
    wanted = np.zeros((columns, columns), dtype=np.bool_)
    for parent, child in _pairs(domains, forbidden, "forbidden"):
        allowed[parent, child] = False
    if tiers is not None:
        rank = np.full(columns, -1)
        for level, members in enumerate(tiers):
            for member in members:
                number = _column(domains, member, "tiers")
                if rank[number] >= 0:
                    raise LearnError(f"tiers: column {member!r} is in two lists")
                rank[number] = level
        ranked = rank >= 0
        back = ranked[:, None] & ranked[None, :] & (rank[:, None] > rank[None, :])
        allowed &= ~back
    for parent, child in _pairs(domains, required, "required"):
        if not allowed[parent, child]:
            raise LearnError(
                f"required: the edge from {domains.name(parent)!r} to {domains.name(child)!r} is "
                "forbidden, or against the tiers"
            )
        wanted[parent, child] = True
    if max_parents is not None and wanted.any() and wanted.sum(axis=0).max() > max_parents:
        child = int(wanted.sum(axis=0).argmax())
        raise LearnError(
            f"required: column {domains.name(child)!r} has more than max_parents={max_parents} "
            "parents"
        )
    return Rules(allowed, wanted, max_parents)


def _pairs(domains: Domains, pairs: Iterable[Sequence[str]], what: str) -> list[tuple[int, int]]:
    """Return edges as pairs of column numbers."""
    found = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2:
            raise LearnError(f"{what} must hold pairs of names, (parent, child); got {pair!r}")
        parent, child = (_column(domains, one, what) for one in pair)
        if parent == child:
            raise LearnError(f"{what}: an edge from {pair[0]!r} to itself is not possible")
        found.append((parent, child))
    return found


def _column(domains: Domains, name: Any, what: str) -> int:
    if name not in domains.numbers:
        raise LearnError(f"{what}: there is no column {name!r}")
    return domains.numbers[name]


__all__ = ["METHODS", "learn_structure"]
