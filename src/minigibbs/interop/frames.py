"""Models from frames: variables from the rows of one frame, factors from the rows of others.

A frame is any table with named columns: a frame of pandas, Polars or PyArrow, or a mapping to
arrays. Names, values and weights are looked up by whole columns. A missing cell (None, NaN, NaT,
the NA of pandas, a masked entry) is read as None. It is not a name, value or weight, and marks
nothing as observed. Results are frames of the library of the variables' frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.domains import Domains
from minigibbs.graph.factors import Factors, Logical
from minigibbs.graph.factors.base import FREE
from minigibbs.graph.graph import FactorGraph
from minigibbs.results.fit import Fit
from minigibbs.results.result import Result
from minigibbs.system import memory
from minigibbs.system.boundary import checked
from minigibbs.system.frames import column_of, frame_like, look_up, numbered, places_of

_COMPARED_BYTES = 100  # per value that two variables of a rule may share
_NOTHING = object()


@checked(GraphError)
@dataclass(frozen=True, eq=False)
class Rule:
    """A factor per row of a frame: a weight if the variables of the row have certain values.

    Parameters
    ----------
    frame : frame or mapping
        Columns by name.
    variables : sequence of str
        The names of the columns that contain variables.
    values : sequence of str, optional
        For each of them, the name of the column with the required value. By default the last value
        of each variable, such as True of (False, True). Not allowed with `same`.
    name : str, default "weight"
        Name of the weights, for learning.
    weight : str, optional
        The column that identifies the weight of a row: rows with the same entry share a weight. By
        default all rows share one.
    scale : str, optional
        A column of numbers that multiply the weight of each row. By default 1.
    start : float or mapping, default 0.0
        The initial weights: one number, or numbers by entry of `weight`.
    fixed : bool, default False
        Whether to exclude the weights from learning.
    same : bool, default False
        Whether the variables must have equal values, instead of given values.

    Examples
    --------
    >>> import minigibbs as mg
    >>> likes = {"who": ["ann", "bob"], "team": ["red", "blue"], "why": ["city", "color"]}
    >>> rule = mg.Rule(likes, ["who"], ["team"], name="likes", weight="why")
    >>> people = {"name": ["ann", "ann", "bob", "bob"], "value": ["red", "blue"] * 2}
    >>> model = mg.from_frames(people, [rule])
    >>> model.graph
    <FactorGraph: 2 variables; factors: 2 logical 'likes'>
    """

    frame: Any
    variables: Sequence[str]
    values: Sequence[str] | None = None
    name: str = "weight"
    weight: str | None = None
    scale: str | None = None
    start: float | Mapping[Any, float] = 0.0
    fixed: bool = False
    same: bool = False


@checked(GraphError, init=False)
@dataclass(frozen=True, eq=False)
class FrameModel:
    """A model made from frames, with results as frames.

    Attributes
    ----------
    graph : FactorGraph
        The model.
    entries : dict
        The entries of each rule's `weight` column, in the order of the weights.

    Examples
    --------
    >>> import minigibbs as mg
    >>> coins = {"name": ["a", "a", "b", "b"], "value": ["heads", "tails"] * 2}
    >>> tails = mg.Rule({"coin": ["a", "b"], "side": ["tails"] * 2}, ["coin"], ["side"])
    >>> model = mg.from_frames(coins, [tails])
    >>> answer = mg.infer(model.graph.with_parameters({"weight": 1.0}))
    >>> {name: column.tolist() for name, column in model.best(answer).items()}
    {'name': ['a', 'b'], 'value': ['tails', 'tails'], 'probability': [0.731..., 0.731...]}
    """

    graph: FactorGraph
    entries: dict[str, list[Any]] = field(repr=False)
    like: Any = field(default=None, repr=False)  # an empty frame of the same library

    def best(self, result: Result) -> Any:
        """Return the most probable value of each variable.

        Parameters
        ----------
        result : Run or Answer
            Marginals of `graph`.

        Returns
        -------
        frame
            One row per variable: its name, its most probable value, and the probability.
        """
        sizes, flat = self.graph.sizes, _flat_marginals(result, self.graph.sizes)
        first = np.cumsum(sizes, dtype=np.int64) - sizes
        owner = np.repeat(np.arange(len(sizes)), sizes)
        top = np.maximum.reduceat(flat, first)
        places = np.flatnonzero(flat == top[owner])
        chosen = places[np.unique(owner[places], return_index=True)[1]] - first
        domains = self.graph.domains
        values = [domains.values(v)[k] for v, k in enumerate(chosen.tolist())]
        names = [domains.name(v) for v in range(len(domains))]
        found = {
            "name": np.array(names, dtype=object),
            "value": np.array([*values, _NOTHING], dtype=object)[:-1],
            "probability": top,
        }
        return frame_like(self.like, found)

    def weights(self, fit: Fit) -> Any:
        """Return the learned weights.

        Parameters
        ----------
        fit : Fit
            The result of `mg.learn(model.graph)`.

        Returns
        -------
        frame
            One row per weight: its rule, entry, value and standard error.
        """
        columns: dict[str, list[Any]] = {"rule": [], "entry": [], "weight": [], "error": []}
        for name, entries in self.entries.items():
            if name not in fit.parameters or len(fit.parameters[name]) != len(entries):
                raise GraphError(
                    f"fit must be one of this model, with {len(entries):,} weights {name!r}; "
                    f"it has the parameters {', '.join(map(repr, fit.parameters)) or 'none'}"
                )
            columns["rule"] += [name] * len(entries)
            columns["entry"] += entries
            columns["weight"] += fit.parameters[name].tolist()
            errors = None if fit.errors is None else fit.errors[name].tolist()
            columns["error"] += errors or [float("nan")] * len(entries)
        kinds = {"rule": object, "entry": object, "weight": np.float64, "error": np.float64}
        found = {key: _column_of(column, kinds[key]) for key, column in columns.items()}
        return frame_like(self.like, found)


@checked(GraphError)
def from_frames(
    variables: Any,
    rules: Sequence[Rule],
    *,
    name: str = "name",
    value: str | None = "value",
    observed: str | None = None,
) -> FrameModel:
    """Build a model from frames of variables and rules.

    Parameters
    ----------
    variables : frame or mapping
        One row per variable and value: a frame of pandas, Polars or PyArrow, or a mapping to
        arrays. The results `best` and `weights` are of the same kind.
    rules : sequence of Rule
        The factors: one per row of each rule's frame.
    name : str, default "name"
        The column of `variables` with the names of the variables.
    value : str or None, default "value"
        The column of `variables` with the values. If None, each row is a variable with the values
        False and True.
    observed : str, optional
        The column that marks observed values by True and False or 1 and 0; a missing cell means not
        observed. The observed values become the evidence of the graph, from which
        `mg.learn(model.graph)` learns.

    Returns
    -------
    FrameModel
        The graph, and methods that return results as frames.

    Raises
    ------
    GraphError
        If a column is missing, or a rule names an unknown variable or value.

    Examples
    --------
    >>> import minigibbs as mg
    >>> cells = {"name": ["city1", "city1", "city2"], "value": ["Rome", "Roma", "Rome"],
    ...          "seen": [False, False, True]}
    >>> alike = mg.Rule({"a": ["city1"], "b": ["city2"]}, ["a", "b"], same=True, name="alike")
    >>> model = mg.from_frames(cells, [alike], observed="seen")
    >>> model.graph.evidence.tolist()
    [-1, 0]
    """
    names = _column(variables, name, "variables")
    found, number = numbered(names)
    _refuse(number[:, None] < 0, "variables", "a name", [names])
    if not len(found):
        raise GraphError("variables: expected at least one row")
    if value is None:
        lookup = _Values(number, np.ones(len(number), np.int64), len(found), names, whole=True)
        domains = Domains(np.full(len(found), 2, np.int32), _texts(found))
        domains.labels = dict.fromkeys(range(len(found)), (False, True))
        evidence = None
        if observed is not None:
            raise GraphError("observed says which value was seen: give a column of values")
    else:
        values = _column(variables, value, "variables")
        if len(values) != len(names):
            raise GraphError(
                f"variables: column {value!r} has {len(values)} rows, {name!r} has {len(names)}"
            )
        known, code = numbered(values)
        _refuse(code[:, None] < 0, "variables", "a value", [values])
        lookup = _Values(number, code, len(found), names, labels=known)
        domains = Domains(lookup.sizes, _texts(found))
        cuts = np.cumsum(lookup.sizes)[:-1]
        rows = np.split(_column_of(values.tolist(), object)[lookup.order], cuts)
        domains.labels = dict(enumerate(map(tuple, rows)))
        evidence = _evidence(variables, observed, lookup, domains)
    entries: dict[str, list[Any]] = {}
    factors = [f for rule in rules for f in _factors(rule, found, lookup, entries)]
    graph = FactorGraph(domains, factors, evidence=evidence)
    return FrameModel(graph, entries, frame_like(variables, {"name": []}))


class _Values:
    """A lookup table of the values of each variable, in the order of the rows."""

    def __init__(
        self,
        variable: NDArray[np.int64],
        code: NDArray[np.int64],
        count: int,
        names: NDArray[Any],
        labels: list[Any] | None = None,
        whole: bool = False,
    ) -> None:
        self.whole, self.labels = whole, {} if labels is None else places_of(labels)
        if whole:
            repeated = np.flatnonzero(np.bincount(variable, minlength=count) > 1)
            self.sizes = np.full(count, 2, dtype=np.int32)
        else:
            self.order = np.argsort(variable, kind="stable")
            self.sizes = np.bincount(variable, minlength=count).astype(np.int32)
            first = np.cumsum(self.sizes, dtype=np.int64) - self.sizes
            place = np.arange(len(variable)) - np.repeat(first, self.sizes)
            self._total = max(len(self.labels), 1)
            keys = variable[self.order] * self._total + code[self.order]
            by_key = np.argsort(keys, kind="stable")
            self._keys, self._place = keys[by_key], place[by_key]
            repeated = variable[self.order][by_key][1:][self._keys[1:] == self._keys[:-1]]
        if len(repeated):
            again = names.tolist()[int(np.flatnonzero(variable == repeated[0])[0])]
            raise GraphError(f"variables: {again!r} has a value, or itself, twice")

    def find(self, variable: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the index of each value in its variable's domain; -1 if it is not in it."""
        if self.whole:
            return _truth(values)
        code = look_up(self.labels, values)
        keys = variable * self._total + code
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        fits = (code >= 0) & (self._keys[place] == keys)
        return np.where(fits, self._place[place], -1)

    def common(
        self, a: NDArray[np.int64], b: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the common values of pairs of variables: the pair, and the two indices."""
        if self.whole:
            pair = np.repeat(np.arange(len(a)), 2)
            number = np.tile(np.arange(2), len(a))
            return pair, number, number
        first = np.searchsorted(self._keys, a * self._total)
        count = self.sizes[a].astype(np.int64)
        what = f"a rule that compares {count.sum():,} values of pairs of variables"
        memory.require(_COMPARED_BYTES * float(count.sum()), what, "use fewer rows or values")
        pair = np.repeat(np.arange(len(a)), count)
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        mine = np.repeat(first, count) + inside
        keys = b[pair] * self._total + self._keys[mine] % self._total
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        fits = self._keys[place] == keys
        return pair[fits], self._place[mine[fits]], self._place[place[fits]]


def _factors(
    rule: Rule, found: list[Any], lookup: _Values, entries: dict[str, list[Any]]
) -> Iterable[Factors]:
    """Yield the factor groups of one rule."""
    where = f"rule {rule.name!r}"
    if not isinstance(rule.name, str):
        raise GraphError(f"{where}: its name must be a text")
    for columns_of in (rule.variables, [] if rule.values is None else rule.values):
        if isinstance(columns_of, str) or not isinstance(columns_of, Sequence):
            raise GraphError(f"{where}: expected a list of columns, got {columns_of!r}")
    if not rule.variables or (rule.values is not None and rule.same):
        raise GraphError(f"{where}: expected columns of variables, and values or same, not both")
    if rule.values is not None and len(rule.values) != len(rule.variables):
        raise GraphError(
            f"{where}: expected a column of values for each of {len(rule.variables)} columns of "
            f"variables, got {len(rule.values)}"
        )
    places = places_of(found)
    columns = [_column(rule.frame, column, where) for column in rule.variables]
    _alike(where, rule, columns[0])
    scope = np.stack([look_up(places, column) for column in columns], axis=1)
    _refuse(scope < 0, where, "a variable that the model has", columns)
    tied, scale = _ties(rule, entries, where), _scales(rule, where)
    if rule.same:
        if scope.shape[1] != 2:
            raise GraphError(f"{where}: same is for two columns of variables")
        pair, one, other = lookup.common(scope[:, 0], scope[:, 1])
        scope, keys = scope[pair], np.stack([one, other], axis=1)
        tied, scale = tied[pair], None if scale is None else scale[pair]
    elif rule.values is None:
        keys = lookup.sizes[scope].astype(np.int64) - 1
    else:
        given = [_column(rule.frame, column, where) for column in rule.values]
        keys = np.stack(
            [lookup.find(scope[:, k], column) for k, column in enumerate(given)], axis=1
        )
        _refuse(keys < 0, where, "a value that its variable may take", given)
    if len(scope):
        starts = _starts(rule, entries[rule.name])
        yield Logical(
            "and",
            scope,
            starts[: int(tied.max()) + 1],
            values=keys,
            name=rule.name,
            tied=tied,
            fixed=rule.fixed,
            scale=scale,
        )


def _alike(where: str, rule: Rule, first: NDArray[Any]) -> None:
    """Raise if the columns of a rule differ in their number of rows."""
    names = [*rule.variables, *(rule.values or ()), rule.weight, rule.scale]
    for name in (name for name in names if name is not None):
        rows = len(_column(rule.frame, name, where))
        if rows != len(first):
            raise GraphError(
                f"{where}: column {name!r} has {rows} rows, {rule.variables[0]!r} has {len(first)}"
            )


def _ties(rule: Rule, entries: dict[str, list[Any]], where: str) -> NDArray[np.int64]:
    """Return the index of each row's weight; rules of one name share their entries."""
    known = entries.setdefault(rule.name, [])
    if rule.weight is None:
        column = np.full(len(_column(rule.frame, rule.variables[0], where)), "all", dtype=object)
    else:
        column = _column(rule.frame, rule.weight, where)
    places = places_of(known)
    for entry in dict.fromkeys(column.tolist()):
        if entry not in places and entry is not None:
            places[entry] = len(known)
            known.append(entry)
    tied = look_up(places, column)
    _refuse(tied[:, None] < 0, where, "what a weight means", [column])
    return tied


def _scales(rule: Rule, where: str) -> NDArray[np.float64] | None:
    if rule.scale is None:
        return None
    column = _column(rule.frame, rule.scale, where)
    try:
        return column.astype(np.float64)  # a missing cell becomes NaN, which factors reject
    except (TypeError, ValueError):
        raise GraphError(f"{where}: scale must be a column of numbers") from None


def _starts(rule: Rule, entries: list[Any]) -> NDArray[np.float64]:
    try:
        if isinstance(rule.start, Mapping):
            return np.array([float(rule.start.get(entry, 0.0)) for entry in entries])
        return np.full(len(entries), float(rule.start))
    except (TypeError, ValueError, OverflowError):
        raise GraphError(
            f"rule {rule.name!r}: start must be a number, or numbers by entry; got {rule.start!r}"
        ) from None


def _evidence(
    frame: Any, observed: str | None, lookup: _Values, domains: Domains
) -> NDArray[np.int64] | None:
    """Return the index of each variable's observed value; `FREE` if none is observed."""
    if observed is None:
        return None
    column = _column(frame, observed, "variables")
    if len(column) != len(lookup.order):
        raise GraphError(
            f"variables: column {observed!r} has {len(column)} rows, not {len(lookup.order)}"
        )
    present = np.array([entry is not None for entry in column.tolist()], dtype=np.bool_)
    marks = _truth(column)
    _refuse(
        (present & (marks < 0))[:, None],
        f"variables, column {observed!r}",
        "True, False, 1, 0 or a missing cell",
        [column],
    )
    marks = marks[lookup.order] == 1
    owner = np.repeat(np.arange(len(domains)), lookup.sizes)
    first = np.cumsum(lookup.sizes, dtype=np.int64) - lookup.sizes
    seen = np.flatnonzero(marks)
    twice = np.flatnonzero(np.bincount(owner[seen], minlength=len(domains)) > 1)
    if len(twice):
        raise GraphError(f"{domains.describe(int(twice[0]))}: two values were observed")
    evidence = np.full(len(domains), FREE, dtype=np.int64)
    evidence[owner[seen]] = seen - first[owner[seen]]
    return evidence


def _flat_marginals(result: Result, sizes: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the marginals of a result, one number per variable and value."""
    square = result.marginals
    if square.shape != (len(sizes), int(sizes.max())):
        raise GraphError(
            f"result must be one of this model, of {len(sizes):,} variables with up to "
            f"{sizes.max():,} values; got marginals of shape {square.shape}"
        )
    return square[np.arange(square.shape[1]) < sizes[:, None]]


def _column(frame: Any, name: str, where: str) -> NDArray[Any]:
    """Return one column as an array of plain entries."""
    return column_of(frame, name, where, GraphError)


def _truth(column: NDArray[Any]) -> NDArray[np.int64]:
    """Return 1 for True and 1, 0 for False and 0, -1 for anything else."""
    return look_up({False: 0, True: 1}, column)


def _refuse(
    wrong: NDArray[np.bool_], where: str, expected: str, columns: Sequence[NDArray[Any]]
) -> None:
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        entry = columns[column].tolist()[row]
        shown = "a missing cell; drop the row" if entry is None else repr(entry)
        raise GraphError(f"{where}, row {row}: expected {expected}, got {shown}")


def _texts(names: list[Any]) -> list[str]:
    """Return the names as strings, which graphs require."""
    return [name if isinstance(name, str) else str(name) for name in names]


def _column_of(entries: Sequence[Any], kind: Any) -> NDArray[Any]:
    """Return a column of arbitrary entries, tuples included."""
    column = np.empty(len(entries), dtype=kind)
    column[:] = entries if kind is not object else [*entries]
    return column
