"""Search for probable modes that no chain visited.

Chains that all start in the same mode agree, so R-hat detects nothing. This module uses the model:
it changes a variable that rarely moved in any chain, updates the strongly coupled ones, and
compares log-potentials. It reports a mode that is probable, that no chain visited, and that no
update of a single variable reaches. It also reports a variable whose conditional distribution
gives another value a probability that no chain shows, because the moves are rejected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import influence_at
from minigibbs.kernels.layout import EQUAL, TABLE, Model
from minigibbs.results.marginals import LEAST_SWEEPS, Marginals
from minigibbs.results.run import Run

_POLARIZED = 0.6  # least share of one value, in every row, of a variable that rarely moved
_BARRIER = 3.0  # least log-potential of the other mode above the lowest on the path to it
_INFLUENCE = 1.0  # least influence of a variable at which a search starts; others move alone
_SHARE = 0.1  # least share of the other mode whose absence is reported
_UNSEEN = 0.25  # fraction of that share: chains that spent more time in the mode have visited it
_LIKELY = 1.5  # multiple of that share: single values with larger marginals may come from visits
_EVALUATIONS = 10_000  # budget of computed factors and conditional distributions, about 20 us each
_STUCK = 0.99  # least share of one value, in every row, of a variable whose moves are all rejected
_STATES = 4  # last states of chains at which variables are compared with their conditionals
_STUCK_EVALUATIONS = 2_000
_VALUES = 3  # other values tried per variable
_LARGEST_TABLE = 4096  # largest number of table entries searched over undecided variables
_PASSES = 2  # passes over the variables around a cluster
_PROBES = 10_000  # budget of all updates that test whether modes are stable, about 20 us each
_PROBE = 2_500  # updates from one state
_PROBE_SWEEPS = (1, 200)  # least and largest number of sweeps from one state
_HOLDS = 0.3  # least difference of the shares of values in two modes, mean over a cluster
_FALSE_ALARM = 1e-3  # probability of reporting uniform marginals as not uniform
_OFF = 0.1  # least reported deviation from uniform
_MOST_EXPANDED = 20_000  # as _MOST_VALUES for stencils, which the search expands into pairs
_MOST_VALUES = 4_000_000  # limit on the values of all variables; larger graphs are not searched


class Mode(NamedTuple):
    """A probable mode that no chain visited."""

    variable: int  # a variable of the cluster
    size: int  # number of variables in the cluster
    share: float  # probability of the mode, relative to both modes together


class _SpentError(Exception):
    """The budget of evaluations is spent."""


def missed_mode(graph: FactorGraph, run: Run) -> Mode | None:
    """Return the first probable mode found that no chain visited, or None.

    Parameters
    ----------
    graph : FactorGraph
        The model. Graphs with implicit factors, and very large ones, are not searched.
    run : Run
        Recorded marginals and last states of the chains.

    Returns
    -------
    Mode or None
    """
    broken = _broken_symmetry(graph, run)
    if broken is not None:
        return broken
    total = int(graph.sizes.sum(dtype=np.int64))
    most = _MOST_EXPANDED if graph.stencils else _MOST_VALUES
    if graph.implicits or total > most or run.state is None:
        return None
    marginals = run.known_marginals
    if marginals is None or marginals.sweeps < LEAST_SWEEPS:
        return None
    top = np.maximum.reduceat(marginals.rows.min(axis=0), marginals.first)
    stuck = _stuck(graph, run, marginals, ~marginals.fixed & (top >= _STUCK))
    if stuck is not None or graph.influence < _INFLUENCE:
        return stuck
    influence = influence_at(graph.packed)
    candidates = ~marginals.fixed & (top >= _POLARIZED)
    state = np.where(candidates, marginals.likeliest, run.state[0]).astype(np.int64)
    search = _Search(graph.packed, candidates, state)
    rng = np.random.default_rng(run.info.seed)
    seen = np.zeros(len(graph), dtype=bool)
    order = np.flatnonzero(candidates & (influence >= _INFLUENCE))
    states = _some_states(run)
    try:
        for seed in order[np.argsort(-influence[order], kind="stable")].tolist():
            if not seen[seed]:
                for cluster, values, share in search.around(seed, seen):
                    pooled = float(marginals.pooled[marginals.first[cluster] + values].mean())
                    seen_at_ends = (states[:, cluster] == values).mean(axis=1).max() > 0.5
                    if seen_at_ends or pooled > _LIKELY * share:
                        continue
                    if search.visited(cluster, values, pooled, states[0], rng) < _UNSEEN * share:
                        return Mode(seed, len(cluster), share)
    except _SpentError:
        pass
    return None


def _stuck(
    graph: FactorGraph, run: Run, marginals: Marginals, candidates: NDArray[np.bool_]
) -> Mode | None:
    """Return a variable that no chain moved although its conditional distribution says it should.

    The shares must differ at the last state of every chain that is checked. The false-alarm rate
    for chains of exact updates is then at most 1 in 10,000 runs. One chain is not enough, unless
    its sampler rejects moves.
    """
    states = _some_states(run)
    if len(states) < 2 and run.info.acceptance == 1.0:
        return None
    search = _Search(graph.packed, candidates, states[0], _EVALUATIONS - _STUCK_EVALUATIONS)
    order = np.flatnonzero(candidates)
    try:
        for variable in order[np.argsort(-graph.local_energies[order], kind="stable")].tolist():
            least = np.ones(int(graph.sizes[variable]))
            for state in states:
                logs = search._logs(state, variable)
                shares = np.exp(logs - logs.max())
                least = np.minimum(least, shares / shares.sum())
                if not ((least >= _SHARE) & (np.arange(len(least)) != state[variable])).any():
                    break
            else:
                pooled = marginals.pooled[marginals.of_variable(variable)]
                unseen = np.where(pooled < _UNSEEN * least, least, 0.0)
                if unseen.max() >= _SHARE:
                    return Mode(variable, 1, float(unseen.max()))
    except _SpentError:
        pass
    return None


def _some_states(run: Run) -> NDArray[np.int64]:
    """Return the last states of a few chains."""
    assert run.state is not None
    return run.state[:: max(1, len(run.state) // _STATES)][:_STATES].astype(np.int64)


def _broken_symmetry(graph: FactorGraph, run: Run) -> Mode | None:
    """Return a mode that is implied by the symmetry of the model, and that the chains do not show.

    If all variables have the same values and factors depend only on which variables agree, all
    marginals are uniform. Chains that are all in one mode agree on other marginals.
    """
    marginals, size = run.known_marginals, int(graph.sizes[0])
    if marginals is None or not marginals.comparable or not _symmetric(graph):
        return None
    from scipy.special import stdtrit

    level = 1.0 - _FALSE_ALARM / (2 * marginals.compared)
    width = float(stdtrit(marginals.degrees, level)) * marginals.standard_errors
    off = np.abs(marginals.pooled - 1.0 / size)
    far = np.flatnonzero((off > width) & (off > _OFF))
    variables = np.unique(far // size)
    if len(variables) < 2:
        return None
    worst = int(far[off[far].argmax()])
    return Mode(worst // size, len(variables), 1.0 / size)


def _symmetric(graph: FactorGraph) -> bool:
    """Return whether permutations of values, the same for all variables, change no energy."""
    if not len(graph) or (graph.sizes != graph.sizes[0]).any() or (graph.evidence >= 0).any():
        return False
    rows = graph.rest.packed.rows
    return bool((rows["pair_end"] == rows["end"]).all())


@dataclass
class _Search:
    """Search for modes near a state."""

    model: Model
    candidates: NDArray[np.bool_]  # the variables that rarely moved
    state: NDArray[np.int64]  # the mode of the chains
    evaluations: int = field(default=0)
    probes: int = field(default=0)

    def around(
        self, seed: int, seen: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], float]]:
        """Yield probable modes in which `seed` has another value: cluster, values and share.

        `seen` marks the clusters that were tried.
        """
        seen[seed] = True
        old = int(self.state[seed])
        alone = self._logs(self.state, seed, self.candidates)
        others = [int(value) for value in np.argsort(-alone, kind="stable") if value != old]
        for value in others[:_VALUES]:
            cluster, values, gain, lowest = self._changed(seed, value)
            seen[cluster] = True
            share = 1.0 / (1.0 + math.exp(min(-gain, 700.0)))
            if len(cluster) > 1 and gain - lowest >= _BARRIER and share >= _SHARE:
                yield np.array(cluster), values, share

    def visited(
        self,
        cluster: NDArray[np.int64],
        values: NDArray[np.int64],
        pooled: float,
        state: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> float:
        """Estimate the share of time that chains spent in a mode; 1 if it is not a mode.

        Gibbs updates start in either mode. They show how often single variables have these values
        without a change of mode, and whether two modes exist at all. The most probable state of
        many variables need not be in a mode, because too few states may be like it.

        Parameters
        ----------
        cluster, values : ndarray
            The variables, and their values in the mode.
        pooled : float
            Mean share of these values in the run.
        state : ndarray
            A state in the mode of the chains.
        rng : Generator
            Random number generator.
        """
        there = state.copy()
        there[cluster] = values
        inside = self._probe(cluster, values, there, rng)
        outside = self._probe(cluster, values, state.copy(), rng)
        return (pooled - outside) / (inside - outside) if inside - outside >= _HOLDS else 1.0

    def _probe(
        self,
        cluster: NDArray[np.int64],
        values: NDArray[np.int64],
        state: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> float:
        """Update a cluster and the variables around it; return the mean share of the values."""
        around = {other for variable in cluster.tolist() for other in self._neighbors(variable)}
        members = np.array(sorted(around | set(cluster.tolist())))
        sweeps = int(np.clip(_PROBE // len(members), *_PROBE_SWEEPS))
        kept, spent = np.zeros(sweeps), self.evaluations
        if self.probes > _PROBES:
            raise _SpentError
        self.probes += sweeps * len(members)
        for sweep in range(sweeps):
            for variable in rng.permutation(members).tolist():
                self.evaluations = spent  # probes have their own budget
                logs = self._logs(state, variable)
                if logs.max() == -np.inf:  # forbidden by neighbors that have not changed yet
                    continue
                chances = np.cumsum(np.exp(logs - logs.max()))
                state[variable] = np.searchsorted(chances, rng.random() * chances[-1], "right")
            kept[sweep] = np.mean(state[cluster] == values)
        return float(kept[sweeps // 4 :].mean())

    def _changed(self, seed: int, value: int) -> tuple[list[int], NDArray[np.int64], float, float]:
        """Change a variable and let coupled variables follow.

        Returns the cluster, its values, the gain of the log-potential, and the lowest gain on the
        path to the new mode, which changes one variable at a time.
        """
        state, cluster = self.state.copy(), [seed]
        gain = lowest = self._set(state, seed, value)
        undecided = self.candidates.copy()
        undecided[seed] = False
        around: dict[int, None] = {}
        queue = deque([seed])
        while queue:
            for other in self._neighbors(queue.popleft()):
                if not undecided[other]:
                    around[other] = None
                    continue
                undecided[other] = False
                logs = self._logs(state, other, undecided)
                best = int(logs.argmax())
                if logs[best] > logs[state[other]]:
                    gain += self._set(state, other, best)
                    lowest = min(lowest, gain)
                    cluster.append(other)
                    queue.append(other)
                else:
                    around[other] = None
        members, values = set(cluster), state[cluster]
        boundary = [variable for variable in around if variable not in members]
        before = self.state.copy()
        gain += self._relax(state, boundary) - self._relax(before, boundary)
        return cluster, values, gain, lowest

    def _relax(self, state: NDArray[np.int64], variables: list[int]) -> float:
        """Set each variable to its most probable value in turn; return the gain."""
        gain = 0.0
        for _ in range(_PASSES):
            for variable in variables:
                best = int(self._logs(state, variable).argmax())
                if best != state[variable]:
                    gain += self._set(state, variable, best)
        return gain

    def _set(self, state: NDArray[np.int64], variable: int, value: int) -> float:
        """Change a variable; return the difference of the log-potential."""
        gain = _difference(self._logs(state, variable), int(state[variable]), value)
        state[variable] = value
        return gain

    def _neighbors(self, variable: int) -> list[int]:
        """Return the free variables that share a factor with this one."""
        row, model = self.model.rows[variable], self.model
        found = model.target[row["start"] : row["pair_end"]].tolist()
        for number in model.target[row["pair_end"] : row["unary_begin"]]:
            factor = model.factors[number]
            found += model.slots["variable"][factor["scope_start"] : factor["scope_end"]].tolist()
        free = (v for v in found if v != variable)
        return [v for v in free if model.rows[v]["end"] > model.rows[v]["start"]]

    def _logs(
        self,
        state: NDArray[np.int64],
        variable: int,
        undecided: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Return the log-potentials of a variable's values, maximized over undecided variables."""
        model, row = self.model, self.model.rows[variable]
        self.evaluations += 1 + int(row["end"] - row["pair_end"])
        if self.evaluations > _EVALUATIONS:
            raise _SpentError
        size = int(row["domain"])
        pairs = slice(int(row["start"]), int(row["pair_end"]))
        others, weights = model.target[pairs], model.weight[pairs]
        kept = state[others] < size
        if undecided is not None:
            kept &= ~undecided[others]
        logs = np.bincount(state[others[kept]], weights[kept], minlength=size).astype(np.float64)
        for number in model.target[int(row["pair_end"]) : int(row["end"])]:
            logs += self._general(model.factors[number], state, variable, size, undecided)
        return logs

    def _general(
        self,
        factor: np.void,
        state: NDArray[np.int64],
        variable: int,
        size: int,
        unsettled: NDArray[np.bool_] | None,
    ) -> NDArray[np.float64]:
        """Return the part of `_logs` from one factor that is not a pair."""
        slots = self.model.slots[factor["scope_start"] : factor["scope_end"]]
        own, variables = slots["variable"] == variable, slots["variable"]
        undecided = ~own & (False if unsettled is None else unsettled[variables])
        decided = ~own & ~undecided
        keys, values = slots["key"].astype(np.int64), np.arange(size)
        if factor["form"] == TABLE:
            place = factor["table_start"] + (keys * state[variables])[decided].sum()
            places = (place + values * keys[own].sum())[:, None]
            for other, key in zip(variables[undecided].tolist(), keys[undecided], strict=True):
                steps = key * np.arange(self.model.rows[other]["domain"])
                if places.size * len(steps) > _LARGEST_TABLE:
                    return np.zeros(size)
                places = (places[:, :, None] + steps).reshape(size, -1)
            best: NDArray[np.float64] = (factor["weight"] * self.model.table[places]).max(axis=1)
            return best
        held = (state[variables] == keys)[decided].sum() + (values[:, None] == keys[own]).sum(
            axis=1
        )
        holds = held == np.count_nonzero(~undecided)
        if factor["form"] == EQUAL:
            holds |= held == 0
        if undecided.any() and factor["weight"] < 0.0:  # an undecided variable can violate it
            holds[:] = False
        return factor["weight"] * holds.astype(np.float64)  # type: ignore[no-any-return]


def _difference(logs: NDArray[np.float64], old: int, new: int) -> float:
    """Return the increase of the log-potential; -inf if either value is forbidden."""
    if not math.isfinite(logs[new]) or not math.isfinite(logs[old]):
        return -math.inf
    return float(logs[new] - logs[old])
