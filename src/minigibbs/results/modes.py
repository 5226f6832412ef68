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

from minigibbs.graph.checks import some_of, total_of
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.packing import influence_at
from minigibbs.kernels.layout import EQUAL, TABLE, Model
from minigibbs.results.marginals import LEAST_SWEEPS, Marginals
from minigibbs.results.run import Run
from minigibbs.system.quantiles import student

_POLARIZED = 0.6  # least share of one value, in every row, of a variable that rarely moved
_BARRIER = 3.0  # least log-potential of the other mode above the lowest on the path to it
_INFLUENCE = 1.0  # least influence of a variable at which a search starts; others move alone
SHARE = 0.1  # least share of the other mode whose absence is reported
_UNSEEN = 0.25  # fraction of that share: chains that spent more time in the mode have visited it
_LIKELY = 1.5  # multiple of that share: single values with larger marginals may come from visits
_EVALUATIONS = 10_000  # budget of computed factors and conditional distributions, about 20 us each
_STUCK = 0.99  # least share of one value, in every row, of a variable whose moves are all rejected
_STATES = 4  # last states of chains at which variables are compared with their conditionals
_STUCK_EVALUATIONS = 2_000
_VALUES = 3  # other values of a variable that are tried
_LARGEST_TABLE = 4096  # entries of a table that are looked through for undecided variables
_PASSES = 2  # over the variables around a cluster
_PROBES = 20_000  # updates in all that test whether modes hold, about 20 us each,
_PROBE = 2_500  # and from one state,
_PROBE_SWEEPS = (1, 200)  # of each variable, at least and at most
_HOLDS = 0.3  # how far shares of values in two modes differ, on average over a cluster
_ATTEMPTS = 2  # of a probe that leaves its mode: a chain that has not seen it may be in luck
_AGREE = 0.5  # of two estimates of the log of a ratio of weights, for it to count as known
_CHANCE = 3.5  # standard errors: by which a share is smaller once in 4,000 runs by chance
_FALSE_ALARM = 1e-3  # of marginals that are not uniform although they must be
_OFF = 0.1  # from uniform, at least
_MOST_EXPANDED = 20_000  # the same for stencils, which the search expands into pairs
_MOST_VALUES = 4_000_000  # of all variables together, beyond which nothing is searched


class Mode(NamedTuple):
    """A probable mode that no chain visited."""

    variable: int  # a variable of the cluster
    size: int  # number of variables in the cluster
    share: float  # probability of the mode, relative to both modes together


class _Probe(NamedTuple):
    """What Gibbs updates that begin in a mode have seen."""

    share: float  # of the cluster's values in the new mode, on average
    own: float  # the same over the sweeps in the mode where it began; NaN without any
    odds: float  # weight of the mode that the probe did not begin in, against its own; or NaN


class _Weighed(NamedTuple):
    """Two modes."""

    rough: float  # share of time that the chains spent in the new mode, by probes alone
    visited: float  # the same, no less than the chain that saw the least of it allows
    share: float  # its share by exchanging both modes' values; 0 where that cannot be told


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
    if int(run.clock.min()) < graph.free:  # not one sweep
        return None
    broken = _broken_symmetry(graph, run)
    if broken is not None:
        return broken
    total = total_of(graph.sizes)
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
    search = Search(graph.packed, candidates, state)
    rng = np.random.default_rng(run.info.seed)
    seen = np.zeros(len(graph), dtype=bool)
    order = np.flatnonzero(candidates & (influence >= _INFLUENCE))
    states = _some_states(run)
    try:
        for seed in order[np.argsort(-influence[order], kind="stable")].tolist():
            if not seen[seed]:
                for cluster, values, share in search.around(seed, seen):
                    found = _unvisited(search, cluster, values, share, marginals, states, rng)
                    if found is not None:
                        return Mode(seed, len(cluster), found)
    except _SpentError:
        pass
    return None


def _unvisited(
    search: Search,
    cluster: NDArray[np.int64],
    values: NDArray[np.int64],
    share: float,
    marginals: Marginals,
    states: NDArray[np.int64],
    rng: np.random.Generator,
) -> float | None:
    """The share of a mode that chains did not visit as they should; None where they did.

    The most probable state of the mode gives its share roughly, so that few visits are enough.
    Where an exchange of the values of both modes gives it, chains that are long enough visit it
    as often, up to the scatter of their effective sample size.
    """
    places = marginals.first[cluster] + values
    pooled = float(marginals.pooled[places].mean())
    least = float(marginals.rows[:, places].mean(axis=1).min())
    there = (states[:, cluster] == values).mean(axis=1) > 0.5
    if there.all():
        return None
    weighed = search.weigh(cluster, values, pooled, least, states[int(there.argmin())], rng)
    rarely = not there.any() and pooled <= _LIKELY * share
    if rarely and weighed.rough < _UNSEEN * share:
        return share
    scatter = math.sqrt(weighed.share * (1.0 - weighed.share) / marginals.least_ess)
    if weighed.share >= SHARE and weighed.visited < weighed.share - _CHANCE * scatter:
        return weighed.share
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
    search = Search(graph.packed, candidates, states[0], _EVALUATIONS - _STUCK_EVALUATIONS)
    order = np.flatnonzero(candidates)
    try:
        for variable in order[np.argsort(-graph.local_energies[order], kind="stable")].tolist():
            least = np.ones(int(graph.sizes[variable]))
            for state in states:
                logs = search._logs(state, variable)
                shares = np.exp(logs - logs.max())
                least = np.minimum(least, shares / shares.sum())
                if not ((least >= SHARE) & (np.arange(len(least)) != state[variable])).any():
                    break
            else:
                pooled = marginals.pooled[marginals.of_variable(variable)]
                unseen = np.where(pooled < _UNSEEN * least, least, 0.0)
                if unseen.max() >= SHARE:
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
    if marginals is None or not marginals.comparable or not has_uniform_marginals(graph):
        return None
    level = 1.0 - _FALSE_ALARM / (2 * marginals.compared)
    width = student(marginals.degrees, level) * marginals.standard_errors
    off = np.abs(marginals.pooled - 1.0 / size)
    far = np.flatnonzero((off > width) & (off > _OFF))
    variables = np.unique(far // size)
    if len(variables) < 2:
        return None
    worst = int(far[off[far].argmax()])
    return Mode(worst // size, len(variables), 1.0 / size)


def has_uniform_marginals(graph: FactorGraph) -> bool:
    """Whether all values are equally probable, by symmetry.

    A permutation of values that is the same for all variables then changes no energy.

    Parameters
    ----------
    graph : FactorGraph
        The model.

    Returns
    -------
    bool
        False where that is not known.
    """
    if graph.free < len(graph) or (some_of(graph.sizes) != graph.sizes[0]).any():
        return False
    if graph.only_stencils:
        return True
    rows = graph.rest.packed.rows
    return bool((rows["pair_end"] == rows["end"]).all())


@dataclass
class Search:
    """Search for modes near a state."""

    model: Model
    candidates: NDArray[np.bool_]  # the variables that rarely moved
    state: NDArray[np.int64]  # the mode of the chains
    evaluations: int = field(default=0)
    probes: int = field(default=0)

    def __post_init__(self) -> None:
        rows = self.model.rows
        self.free = rows["end"] > rows["start"]  # of each variable, whether it has factors

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
            if len(cluster) > 1 and gain - lowest >= _BARRIER and share >= SHARE:
                yield np.array(cluster), values, share

    def weigh(
        self,
        cluster: NDArray[np.int64],
        values: NDArray[np.int64],
        pooled: float,
        least: float,
        state: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> _Weighed:
        """Estimate the share of time that chains spent in a mode, and the share that it has.

        Gibbs updates begin in either mode. They show how often single variables have these values
        without a change of the mode, and whether there are two modes at all: the most probable
        state of many variables need not lie in one, since there may be too few states like it.
        The exchange of both modes' values maps one mode onto the other. So the mean ratio of
        probabilities under the exchange, within a mode, is the ratio of the weights of both modes.

        Parameters
        ----------
        cluster, values : ndarray
            The variables, and their values in the mode.
        pooled : float
            The mean share of these values in the run.
        least : float
            The same in the chain where it is smallest.
        state : ndarray
            A state in the mode of the chains.
        rng : Generator
            Random numbers.

        Returns
        -------
        _Weighed
            All shares of time are 1 where there is no second mode.
        """
        there = state.copy()
        there[cluster] = values
        for attempt in range(_ATTEMPTS):
            inside = self._probe(cluster, values, there.copy(), rng, True)
            if attempt == 0:
                outside = self._probe(cluster, values, state.copy(), rng, False)
            distance = inside.share - outside.share
            if distance >= _HOLDS:
                break
        else:
            return _Weighed(1.0, 1.0, 0.0)
        away = min(outside.own, least)
        visited = (pooled - away) / (inside.own - away)
        share, product = 0.0, inside.odds * outside.odds
        if product > 0.0 and abs(math.log(product)) <= _AGREE:
            share = min(outside.odds / (1.0 + outside.odds), 1.0 / (1.0 + inside.odds))
        return _Weighed((pooled - outside.share) / distance, visited, share)

    def _probe(
        self,
        cluster: NDArray[np.int64],
        values: NDArray[np.int64],
        state: NDArray[np.int64],
        rng: np.random.Generator,
        inside: bool,
    ) -> _Probe:
        """Update a cluster and the variables around it."""
        around = {other for variable in cluster.tolist() for other in self._neighbors(variable)}
        members = np.array(sorted(around | set(cluster.tolist())))
        sweeps = int(np.clip(_PROBE // len(members), *_PROBE_SWEEPS))
        kept, spent = np.zeros(sweeps), self.evaluations
        own, gains = [], []
        if self.probes > _PROBES:
            raise _SpentError
        self.probes += sweeps * (len(members) + len(cluster))
        for sweep in range(sweeps):
            self.sweep(state, members, rng)
            kept[sweep] = np.mean(state[cluster] == values)
            away = kept[sweep] > np.mean(state[cluster] == self.state[cluster])
            if sweep >= sweeps // 4 and away == inside:
                own.append(kept[sweep])
                gains.append(self._exchanged(cluster, values, state))
                self.evaluations = spent
        share = float(kept[sweeps // 4 :].mean())
        if not own:
            return _Probe(share, math.nan, math.nan)
        return _Probe(share, float(np.mean(own)), float(np.exp(np.minimum(gains, 700.0)).mean()))

    def sweep(
        self,
        state: NDArray[np.int64],
        variables: NDArray[np.int64],
        rng: np.random.Generator,
        scale: float = 1.0,
        shares: NDArray[np.float64] | None = None,
    ) -> float:
        """Update variables in random order; return the difference of the log-potential.

        Parameters
        ----------
        state : ndarray
            The state, which is changed.
        variables : ndarray
            The variables to update.
        rng : Generator
            Random numbers.
        scale : float, default 1.0
            Factor of the log-potential. Infinity chooses the most probable values.
        shares : ndarray, optional
            Array [variable, value] to which the conditional probabilities are added.
        """
        total, spent = 0.0, self.evaluations
        for variable in rng.permutation(variables).tolist():
            logs, old = self._logs(state, variable), int(state[variable])
            self.evaluations = spent  # sweeps have their own budget
            if logs.max() == -np.inf:  # forbidden by neighbors that have not changed yet
                continue
            if math.isinf(scale):
                new = int(logs.argmax()) if logs.max() > logs[old] else old
            else:
                weights = np.exp(scale * (logs - logs.max()))
                chances = np.cumsum(weights)
                if shares is not None:
                    shares[variable, : len(weights)] += weights / chances[-1]
                new = int(np.searchsorted(chances, rng.random() * chances[-1], "right"))
            if new != old:
                state[variable] = new
                total += _difference(logs, old, new)
        return total

    def _exchanged(
        self, cluster: NDArray[np.int64], values: NDArray[np.int64], state: NDArray[np.int64]
    ) -> float:
        """How much the log-potential grows if the values of the two modes are exchanged."""
        before, old = state[cluster], self.state[cluster]
        after = np.where(before == old, values, np.where(before == values, old, before))
        moves = zip(cluster[after != before], after[after != before], strict=True)
        gain = sum(self._set(state, int(variable), int(value)) for variable, value in moves)
        state[cluster] = before
        return gain

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
        parts = [model.target[row["start"] : row["pair_end"]]]
        for number in model.target[row["pair_end"] : row["unary_begin"]]:
            factor = model.factors[number]
            parts.append(model.slots["variable"][factor["scope_start"] : factor["scope_end"]])
        found = np.concatenate(parts)
        neighbors: list[int] = found[self.free[found] & (found != variable)].tolist()
        return neighbors

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
