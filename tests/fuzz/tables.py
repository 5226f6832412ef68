"""Bad tables: `python -m tests.fuzz tables --count 1000 --seed 0`.

A case builds a random table with odd columns, names and rows in one of several libraries, and gives
it to one function that reads tables. It passes if the call ends with a result that agrees with the
table, or with an error of this library. Estimators may also refuse a table as scikit-learn does.
"""

import argparse
import datetime
import decimal
import math
import random
import time
import traceback
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import minigibbs as mg
from tests.fuzz.cases import READ, REFUSED

ESTIMATOR = "refused as scikit-learn does"
HARMLESS = (READ, REFUSED, ESTIMATOR)
_DAY = datetime.date(2024, 2, 29)
_NOON = datetime.datetime(2024, 2, 29, 12)
# Values of a column by kind; each row draws one of them.
POOLS: dict[str, list[Any]] = {
    "text": ["a", "b", "c"],
    "one text": ["a"],
    "nothing": [None],
    "only NaN": [math.nan],
    "truth": [True, False],
    "nullable truth": [True, False, None],
    "digits": [0, 1],
    "integers": [-3, 0, 7],
    "huge integers": [2**62, -(2**62), 2**63, 10**30],
    "numbers": [0.0, -0.0, 1.5, math.nan],
    "infinite numbers": [math.inf, -math.inf, 1.0, math.nan],
    "tiny numbers": [5e-324, 1e-300, 1e308, -1e308],
    "numbers and texts": [1, "1", 1.0, True, None, "a"],
    "texts that look missing": ["", " ", "nan", "None", "NA", "NULL"],
    "odd texts": ["\x00", "\N{SNOWMAN}", "a\nb", "e\N{COMBINING ACUTE ACCENT}", "<b>&", "x" * 5000],
    "lone surrogates": ["\ud800", "a"],
    "bytes": [b"a", b"\xff", b""],
    "dates": [_DAY, datetime.date(1, 1, 1), None],
    "times": [_NOON, datetime.datetime(2262, 1, 1), None],
    "zoned times": [_NOON.replace(tzinfo=datetime.UTC), None],
    "durations": [datetime.timedelta(1), datetime.timedelta(0), None],
    "decimals": [decimal.Decimal("1.10"), decimal.Decimal(2)],
    "complex numbers": [1j, 2 + 0j],
    "tuples": [(1, 2), (3,), ()],
    "lists": [[1], [2, 3], []],
    "mappings": [{"a": 1}, {}],
    "sets": [{1}, frozenset([2])],
    "objects": [object(), uuid.UUID(int=3), Ellipsis],
    "arrays": [np.arange(2), np.zeros(3)],
    "NumPy numbers": [np.float32(1.5), np.int8(3), np.bool_(True), np.datetime64("NaT")],
}
NAMES = ["a", "b", "city", "x0", "", " ", 0, 1, "1", 1.5, True, ("p", "q"), "é", "n" * 300, "a,b"]
NAMES += ["a -> b", "t1.a", "<i>", "%s{0}"]
LENGTHS = (0, 1, 2, 3, 12, 40, 40, 40)


class Cases:
    """The random choices of one case."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = random.Random(f"tables {seed} {number}")
        self.mild = self.rng.random() < 0.5  # cells that most functions can read
        self.rows = self.rng.choice(LENGTHS[4:] if self.mild else LENGTHS)
        self.names = self._names()

    def _names(self) -> list[Any]:
        count = self.rng.choice((2, 3, 4, 6) if self.mild else (0, 1, 2, 3, 4, 6))
        if self.mild or self.rng.random() < 0.5:
            return [f"c{k}" for k in range(count)]
        found = [self.rng.choice(NAMES) for _ in range(count)]
        return found if self.rng.random() < 0.3 else list(dict.fromkeys(found))

    def column(self) -> list[Any]:
        """Return the cells of a column."""
        rng, rows = self.rng, self.rows
        if rng.random() < 0.05:
            return [f"id {k}" for k in range(rows)]
        if rng.random() < 0.1:
            return [rng.gauss(0.0, 1.0) for _ in range(rows)]
        kinds = list(POOLS)
        pool = POOLS[rng.choice(kinds[:13] if self.mild else kinds)]
        cells = [rng.choice(pool) for _ in range(rows)]
        if rng.random() < 0.3:
            cells = [None if rng.random() < 0.2 else cell for cell in cells]
        return cells

    def table(self) -> Any:
        """Return a table of some library; of another one if it refuses the cells."""
        columns = [self.column() for _ in self.names]
        for build in self.rng.sample(BUILDERS, len(BUILDERS)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return build(self.rng, self.names, columns)
            except BaseException as error:  # Polars panics at some lists
                if isinstance(error, KeyboardInterrupt):
                    raise
        return dict(zip(self.names, columns, strict=True))


_STORED = {str, int, float, bool, bytes, list, tuple, dict, type(None), decimal.Decimal}
_STORED |= {datetime.date, datetime.datetime, datetime.timedelta}


def as_mapping(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    return dict(zip(names, columns, strict=True))


def as_rows(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    return [list(row) for row in zip(*columns, strict=True)]


def as_array(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    whole = np.empty((len(columns[0]), len(columns)), dtype=object)
    for k, column in enumerate(columns):
        for row, cell in enumerate(column):
            whole[row, k] = cell
    kind = rng.choice((object, object, float, str, "U", np.float32))
    return whole.astype(kind)


def as_masked(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    whole = np.array(columns, dtype=rng.choice((float, object))).T
    return np.ma.array(whole, mask=np.array([rng.random() < 0.3 for _ in whole.flat]))


def as_pandas(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    import pandas as pd

    frame = pd.DataFrame({k: pd.Series(column, dtype=object) for k, column in enumerate(columns)})
    frame.columns = pd.Index(names, dtype=object) if rng.random() < 0.8 else pd.Index(names)
    return _odd_index(rng, frame)


def as_typed_pandas(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    import pandas as pd

    kinds = ("category", "string", "Int64", "boolean", "Float64", "float32", "str", None, None)
    kinds += ("datetime64[ns]", "Sparse[float]", "string[pyarrow]", "int64[pyarrow]", "period[D]")
    found = {}
    for k, column in enumerate(columns):
        series = pd.Series(column)
        try:
            series = series.astype(rng.choice(kinds))
            if series.dtype == "category" and rng.random() < 0.5:
                series = series.cat.add_categories(["never"]).cat.as_ordered()
        except Exception:
            pass
        found[k] = series
    frame = pd.DataFrame(found)
    frame.columns = names
    return _odd_index(rng, frame)


def _odd_index(rng: random.Random, frame: Any) -> Any:
    import pandas as pd

    rows, choice = len(frame), rng.random()
    if choice < 0.15:
        frame.index = [7] * rows
    elif choice < 0.25:
        frame.index = pd.MultiIndex.from_arrays([range(rows), ["x"] * rows])
    elif choice < 0.35:
        frame.index = pd.date_range("2024", periods=rows)
    elif choice < 0.4:
        frame.columns = pd.MultiIndex.from_arrays([["p"] * frame.shape[1], frame.columns])
    return frame


def as_polars(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    import polars as pl

    kinds = (None, None, None, pl.Categorical, pl.Object, pl.Float32, pl.Int8, pl.Null, pl.Binary)
    found = []
    for name, column in zip(names, columns, strict=True):
        try:
            found.append(pl.Series(str(name), column, dtype=rng.choice(kinds), strict=False))
        except Exception:
            found.append(pl.Series(str(name), column, strict=False))
    frame = pl.DataFrame(found)
    return frame.lazy() if rng.random() < 0.03 else frame


def as_arrow(rng: random.Random, names: list[Any], columns: list[list[Any]]) -> Any:
    import pyarrow as pa

    arrays = []
    for column in columns:
        if not {type(cell) for cell in column} <= _STORED:
            raise TypeError("PyArrow can crash on such cells")
        array = pa.chunked_array([pa.array(column, from_pandas=rng.random() < 0.5)])
        try:
            choice = rng.random()
            if choice < 0.2:
                array = array.dictionary_encode()
            elif choice < 0.3:
                array = array.cast(pa.large_string())
            elif choice < 0.4:
                array = array.cast(pa.string_view())
            elif choice < 0.5:
                array = pa.chunked_array([*array.chunks, *array.slice(0, 0).chunks])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
        arrays.append(array)
    return pa.table(arrays, names=list(map(str, names)))


BUILDERS = (
    *(as_mapping, as_rows, as_array, as_masked),
    *(as_pandas, as_typed_pandas, as_pandas, as_typed_pandas),
    *(as_polars, as_polars, as_arrow, as_arrow),
)


def native(table: Any) -> list[list[Any]]:
    """Return the cells of a table by column, read by the table's own library."""
    if isinstance(table, dict):
        return [list(column) for column in table.values()]
    if hasattr(table, "iloc"):
        return [table.iloc[:, k].tolist() for k in range(table.shape[1])]
    if hasattr(table, "to_series"):
        return [table.to_series(k).to_list() for k in range(table.shape[1])]
    if hasattr(table, "column_names"):
        return [table.column(k).to_pylist() for k in range(table.num_columns)]
    return [[row[k] for row in table] for k in range(len(table[0]))] if len(table) else []


def absent(cell: Any) -> bool:
    """Return whether a cell is missing."""
    if cell is None or cell is np.ma.masked:
        return True
    if isinstance(cell, list | tuple | dict | set | frozenset | np.ndarray):
        return False
    try:
        return bool(cell != cell)
    except TypeError:
        return True  # the NA of pandas


def unchanged(before: Any, after: Any, typed: bool = True) -> bool:
    """Return whether two cells are both missing, or the same; of one type if `typed`."""
    if absent(before) or absent(after):
        return absent(before) and absent(after)
    return (type(before) is type(after) or not typed) and bool(before == after)


def _kinds(table: Any) -> Any:
    """Return the type of a table, and the types of its columns."""
    if hasattr(table, "iloc"):
        return type(table), table.dtypes.tolist(), table.index.tolist(), table.columns.tolist()
    if hasattr(table, "to_series"):
        return type(table), table.schema
    if hasattr(table, "column_names"):
        return type(table), table.schema
    return type(table)


def structure(rng: random.Random, table: Any) -> None:
    """Learn a structure; its parameters are probabilities and it reads its own table again."""
    method = rng.choice(("tree", "network", "pairwise"))
    bins = rng.choice((None, 3, [0.0, 1.0]))
    found = mg.learn_structure(table, method, bins=bins, seed=1, threads=1, progress=False)
    answer = mg.infer(found.graph, progress=False)
    assert np.isfinite(answer.marginals).all()
    codes = found.encode(table)
    assert codes.shape == (found.rows, len(found.graph))
    assert abs(float(np.mean(codes < 0)) - found.missing) < 1e-12
    str(found)
    if method != "pairwise":
        again = mg.learn_tables(found.graph, codes, progress=False)
        assert np.isfinite(mg.infer(again, progress=False).marginals).all()


def repair(rng: random.Random, table: Any) -> None:
    """Repair a table; its type stays, and cells that are not listed stay."""
    labels = None
    names = [str(name) for name in _names_of(table)]
    if rng.random() < 0.3 and names:
        labels = {0: {rng.choice(names): rng.choice(["a", 1, 2.5])}}
    rules = rng.choice((None, None, "a -> b", "c0 -> c1", "t1&t2&EQ(t1.c0,t2.c0)&LT(t1.c1,t2.c1)"))
    found = mg.repair(table, rules, labels, progress=False)
    before, after = native(table), native(found.frame)
    if not isinstance(table, dict) and labels is None:  # a label may be a new category
        assert _kinds(found.frame) == _kinds(table), (_kinds(found.frame), _kinds(table))
    changed = len(native(found.cells)[0])
    differ = sum(
        not unchanged(one, other, not isinstance(table, dict))
        for column, repaired in zip(before, after, strict=True)
        for one, other in zip(column, repaired, strict=True)
    )
    assert differ <= changed, f"{differ} cells differ, {changed} are listed"
    assert not any(
        absent(other) and not absent(one)
        for column, repaired in zip(before, after, strict=True)
        for one, other in zip(column, repaired, strict=True)
    ), "a present cell became missing"
    native(found.suspicion)
    str(found), found._repr_html_()


def _names_of(table: Any) -> list[Any]:
    if isinstance(table, dict):
        return list(table)
    return list(getattr(table, "column_names", getattr(table, "columns", [])))


def learn(rng: random.Random, table: Any) -> None:
    """Learn the parameters of a graph whose variables are the columns, with their values."""
    names, labels = [str(name) for name in _names_of(table)], {}
    cells = native(table)
    for k, column in enumerate(cells if rng.random() < 0.8 else []):
        present = [cell for cell in column if not absent(cell) and _is_hashable(cell)]
        labels[k] = tuple(dict.fromkeys(present))[: rng.choice((2, 50))] or ("nothing",)
    sizes = [len(labels.get(k, (0, 1))) for k in range(len(cells))] or [2] * 3
    groups = [mg.Unary([k], np.zeros((1, n)), name=f"h{k}") for k, n in enumerate(sizes)]
    graph = mg.FactorGraph(sizes, groups, names=names if len(set(names)) == len(sizes) else None)
    graph.domains.labels = labels
    method = rng.choice(("exact", "pseudo", "pcd"))
    fit = mg.learn(graph, table, method, l2=0.1, steps=3, seed=1, progress=False)
    assert all(np.isfinite(one).all() for one in fit.parameters.values())
    fit.log_likelihood(table)


def _is_hashable(cell: Any) -> bool:
    try:
        hash(cell)
    except TypeError:
        return False
    return True


def answers(rng: random.Random, table: Any) -> None:
    """Answer rows with the model of the table, or of one whose variables have two values."""
    try:
        found = mg.learn_structure(table, seed=1, threads=1, progress=False)
        graph = found.graph
        assert np.isfinite(found.infer_many(table).log_z).all()
    except mg.MinigibbsError:
        names = list(dict.fromkeys(str(name) for name in _names_of(table))) or ["a", "b"]
        graph = mg.FactorGraph([2] * len(names), [], names=names)
    shares = np.nan_to_num(mg.infer_many(graph, table, progress=False).flat)
    assert ((shares >= 0) & (shares <= 1 + 1e-9)).all()


def framed(rng: random.Random, table: Any) -> None:
    """Build a model from frames whose columns have odd names, values and marks."""
    names, cells = _names_of(table), native(table)
    if cells and rng.random() < 0.7:  # plausible frames of variables, with odd values
        keys = [f"v{row // 2}" for row in range(len(cells[0]))]
        marks = [rng.choice([True, False, False, None]) for _ in keys]
        table = {"name": keys, "value": cells[0], "seen": marks, "why": cells[-1]}
        build = rng.choice((as_mapping, as_pandas, as_polars, as_arrow))
        try:
            table = build(rng, list(table), list(table.values()))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
        names = ["name", "value", "why"]
    pick = [str(rng.choice(names)) if names else "a" for _ in range(3)]
    if names == ["name", "value", "why"]:
        pick = names
    rule = mg.Rule(table, pick[:1], pick[1:2], name="w", weight=rng.choice((None, pick[2])))
    same = mg.Rule(table, [pick[0], pick[0]], same=True, name="s")
    model = mg.from_frames(
        table,
        rng.choice(([], [rule], [same])),
        name=pick[0],
        value=rng.choice((pick[1], pick[1], None)),
        observed=rng.choice((None, None, "seen")),
    )
    best = model.best(mg.infer(model.graph, progress=False))
    assert not any(absent(cell) for column in native(best) for cell in column)


def impute(rng: random.Random, table: Any) -> None:
    """Fill in missing cells; present cells and types stay."""
    from minigibbs.sklearn import CategoricalImputer

    method = rng.choice(("tree", "network", "pairwise"))
    imputer = CategoricalImputer(method, random_state=0).fit(table)
    filled = imputer.transform(table)
    if hasattr(table, "columns") or hasattr(table, "column_names"):
        assert _kinds(filled) == _kinds(table), (_kinds(filled), _kinds(table))
    for before, after, known in zip(
        native(table), native(filled), imputer.categories_, strict=True
    ):
        for one, other in zip(before, after, strict=True):
            assert absent(other) == (absent(one) and not len(known)), (one, other)
            if not absent(one) and hasattr(table, "columns"):
                assert unchanged(one, other), (one, other)
    shares = imputer.predict_proba(table)
    for part in imputer.slices_.values():
        if part.stop > part.start:
            assert np.allclose(shares[:, part].sum(axis=1), 1.0)
    imputer.sample(table, 2)


def repairer(rng: random.Random, table: Any) -> None:
    """Repair with the estimator; the type stays."""
    from minigibbs.sklearn import TableRepairer

    found = TableRepairer(missing=rng.choice(((), ("",), ("nan", 0)))).fit_transform(table)
    if hasattr(table, "columns") or hasattr(table, "column_names"):
        assert _kinds(found) == _kinds(table), (_kinds(found), _kinds(table))


def machine(rng: random.Random, table: Any) -> None:
    """Fit a Boltzmann machine to whatever is there."""
    from minigibbs.sklearn import BoltzmannMachine, RestrictedBoltzmannMachine

    if rng.random() < 0.5:
        one = BoltzmannMachine(method="exact", l2=0.01, random_state=0)
    else:
        one = RestrictedBoltzmannMachine(2, steps=3, random_state=0)
    one.fit(table)
    assert np.isfinite(one.score(table))
    assert one.transform(table).shape[0] == len(native(table)[0])


CALLS: dict[str, Callable[[random.Random, Any], None]] = {
    "structure": structure,
    "repair": repair,
    "learn": learn,
    "answers": answers,
    "frames": framed,
    "imputer": impute,
    "repairer": repairer,
    "machine": machine,
}


def outcome(seed: int, number: int) -> tuple[str, str]:
    """Return the call of a case, and its outcome: one of `HARMLESS`, or what went wrong."""
    cases = Cases(seed, number)
    name, table = cases.rng.choice(list(CALLS)), cases.table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # of NumPy: a number went wrong unnoticed
        warnings.filterwarnings("error", category=RuntimeWarning, module="minigibbs")
        try:
            CALLS[name](cases.rng, table)
        except mg.MinigibbsError as error:
            return name, REFUSED if str(error).strip() else "an error without a message"
        except BaseException as error:  # a panic of compiled code is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            if name in ("imputer", "repairer", "machine") and _of_scikit_learn(error):
                return name, ESTIMATOR
            own = [
                f"{Path(one.filename).name}:{one.lineno} {one.name}"
                for one in traceback.extract_tb(error.__traceback__)
                if "minigibbs" in one.filename or "tests" in one.filename
            ]
            text = " ".join(str(error).split())[:400]
            return name, f"{type(error).__name__} in {own[-1]}: {text}"
    return name, READ


def _of_scikit_learn(error: BaseException) -> bool:
    """Return whether the checks of scikit-learn refused a table, or our reader did likewise."""
    passed = [Path(one.filename) for one in traceback.extract_tb(error.__traceback__)]
    checks = any(one.match("sklearn/utils/validation.py") for one in passed)
    return isinstance(error, ValueError | TypeError) and (checks or passed[-1].stem == "reading")


def campaign(seed: int, first: int, count: int) -> Counter[tuple[str, str]]:
    """Try cases; return how often each call had each outcome."""
    found: Counter[tuple[str, str]] = Counter()
    for number in range(first, first + count):
        begun = time.monotonic()
        name, what = outcome(seed, number)
        spent = time.monotonic() - begun
        found[name, what if what in HARMLESS else f"{what} (case {number})"] += 1
        if what not in HARMLESS or spent > 20.0:
            print(f"case {number}, {name}, {spent:.1f} s: {what}", flush=True)
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz tables", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found = campaign(options.seed, options.first, options.count)
    for name in CALLS:
        each = {what: found[name, what] for what in HARMLESS if found[name, what]}
        print(f"{name:<10} " + ", ".join(f"{number} {what}" for what, number in each.items()))
    wrong = sum(number for (_, what), number in found.items() if what not in HARMLESS)
    print(f"seed {options.seed}: {options.count} tables, {wrong} went wrong")
    return 1 if wrong else 0
