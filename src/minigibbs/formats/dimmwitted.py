"""DimmWitted's binary factor graphs, as written by DeepDive: a folder of `graph.*` files.

`docs/formats.md` describes the byte layout and the functions.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.literals import FUNCTIONS, Literals, Weights, groups
from minigibbs.graph.checks import as_array
from minigibbs.graph.domains import MAX_DOMAIN, Domains
from minigibbs.graph.factors.base import FREE, LARGEST
from minigibbs.graph.graph import FactorGraph
from minigibbs.system import memory

_WEIGHT = np.dtype([("id", ">u8"), ("fixed", "u1"), ("value", ">f8")])
_VARIABLE = np.dtype(
    [("id", ">u8"), ("role", "u1"), ("value", ">u8"), ("type", ">u2"), ("size", ">u8")]
)
_DOMAIN = np.dtype([("id", ">u8"), ("size", ">u8")])  # followed by `size` values
_VALUE = np.dtype([("value", ">u8"), ("truth", ">f8")])
_FACTOR = np.dtype([("function", ">u2"), ("arity", ">u8")])  # then `arity` literals, then
_LITERAL = np.dtype([("variable", ">u8"), ("equal", ">u8")])
_END = np.dtype([("weight", ">u8"), ("feature", ">f8")])

_BOOLEAN, _CATEGORICAL = 0, 1
_READ_BYTES = 8  # bytes of memory per byte of a file, while its graph is built


def read(
    path: str | os.PathLike[str],
    evidence: bool = True,
    weights: Mapping[int, float] | ArrayLike | None = None,
) -> FactorGraph:
    """Read a graph from its folder, or from the `graph.meta` in it.

    Weights that are not fixed become the graph's parameters, named "weights": `mg.learn(graph)`
    learns them from the evidence.

    Parameters
    ----------
    path
        The folder.
    evidence
        Whether the file's evidence variables are clamped; otherwise all variables are sampled.
    weights
        Replacements of the weights in the file, which are those before learning: one per weight, or
        some by number.
    """
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    counts = _read_meta(folder / "graph.meta")
    weight, fixed = _read_weights(folder / "graph.weights", counts["weights"], weights)
    variables = _read_variables(folder / "graph.variables", counts["variables"])
    domains = _read_domains(folder / "graph.domains", variables)
    factors = _read_factors(folder / "graph.factors", counts, weight, domains)
    clamped = _evidence(folder / "graph.variables", variables, domains)
    return FactorGraph(
        domains,
        list(groups(folder / "graph.factors", factors, domains.sizes, Weights(weight, fixed))),
        evidence=clamped if evidence else None,
    )


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Raise an error: this format can only be read."""
    raise FormatError(f"{path}: DimmWitted graphs are read, not written; write a .uai or .mg file")


def _read_meta(path: Path) -> dict[str, int]:
    """Read the numbers of weights, variables, factors and edges in the other files."""
    kinds = ("weights", "variables", "factors", "edges")
    if not path.is_file():
        raise FormatError(f"{path.parent}: expected a folder with a graph.meta in it, got none")
    with open(path, "rb") as stream:
        words = stream.read(4096).split(b",")
    counts = {}
    for place, kind in enumerate(kinds):
        word = words[place].strip() if place < len(words) else b""
        if not (word.isdigit() and len(word) < 20):
            raise FormatError(
                f"{path}, line 1: expected the numbers of {', '.join(kinds)}, separated by commas; "
                f"got {word[:20].decode('ascii', 'backslashreplace')!r} for {kind}"
            )
        counts[kind] = int(word)
    if not 0 < counts["variables"] <= MAX_DOMAIN:
        raise FormatError(
            f"{path}, line 1: expected 1 to {MAX_DOMAIN} variables, got {counts['variables']}"
        )
    return counts


def _read_bytes(path: Path) -> NDArray[np.uint8]:
    length = os.path.getsize(path)
    memory.require(length * _READ_BYTES, f"reading {path}", "use a machine with more")
    return np.fromfile(path, dtype=np.uint8)


def _read_records(path: Path, kind: np.dtype[Any], count: int, what: str) -> NDArray[Any]:
    """Read records of fixed length, and sort them by their unique numbers."""
    length = os.path.getsize(path)
    if length != count * kind.itemsize:
        raise FormatError(
            f"{path}, byte {min(length, count * kind.itemsize)}: expected {count:,} {what} of "
            f"{kind.itemsize} bytes, {count * kind.itemsize:,} in all, got {length:,}"
        )
    records = _read_bytes(path).view(kind)
    seen = np.zeros(count, dtype=np.bool_)
    known = records["id"] < count
    seen[records["id"][known].astype(np.int64)] = True
    if not seen.all():
        order = np.argsort(records["id"], kind="stable")
        wrong = ~known
        wrong[order[1:]] |= records["id"][order[1:]] == records["id"][order[:-1]]
        place = int(np.flatnonzero(wrong)[0])
        raise FormatError(
            f"{path}, byte {place * kind.itemsize}: expected {what} 0 to {count - 1}, each once; "
            f"got {records['id'][place]}"
        )
    return records[np.argsort(records["id"])]


def _read_weights(
    path: Path, count: int, given: Mapping[int, float] | ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read the weights, and which of them are fixed."""
    records = _read_records(path, _WEIGHT, count, "weights")
    weight, fixed = records["value"].astype(np.float64), records["fixed"] != 0
    if isinstance(given, Mapping):
        for number, value in given.items():
            if not 0 <= number < count:
                raise FormatError(f"{path}: weights are 0 to {count - 1}, got {number}")
            weight[number] = value
    elif given is not None:
        rule = f"{path}: weights must be {count} real numbers"
        weight = as_array(given, "iufb", rule, FormatError).astype(np.float64)
        if weight.shape != (count,):
            raise FormatError(f"{path}: expected {count} weights, got shape {weight.shape}")
    wrong = np.flatnonzero(~(np.abs(weight) <= LARGEST))
    if len(wrong):
        raise FormatError(
            f"{path}: weight {wrong[0]} must be finite, at most {LARGEST} in size, "
            f"got {weight[wrong[0]]}"
        )
    return weight, fixed


def _read_variables(path: Path, count: int) -> NDArray[Any]:
    records = _read_records(path, _VARIABLE, count, "variables")
    boolean = records["type"] == _BOOLEAN
    for wrong, rule in (
        (records["type"] > _CATEGORICAL, "type 0 (boolean) or 1 (categorical)"),
        (boolean & (records["size"] != 2), "2 values, as it is boolean"),
        ((records["size"] < 1) | (records["size"] > MAX_DOMAIN), f"1 to {MAX_DOMAIN} values"),
    ):
        if wrong.any():
            variable = int(np.flatnonzero(wrong)[0])
            raise FormatError(
                f"{path}: variable {variable}: expected {rule}, got type "
                f"{records['type'][variable]} with {records['size'][variable]} values"
            )
    return records


def _read_domains(path: Path, variables: NDArray[Any]) -> Domains:
    """Read sizes, and labels of domains other than 0, 1, 2, ...; values are in ascending order."""
    sizes = variables["size"].astype(np.int32)
    labels: dict[int, list[int]] = {}
    data = _read_bytes(path) if path.is_file() else np.empty(0, dtype=np.uint8)
    place = 0
    while place < len(data):
        head = _record(path, data, place, _DOMAIN, 1)[0]
        variable, size = int(head["id"]), int(head["size"])
        if variable >= len(sizes) or variable in labels or size != sizes[variable]:
            expected = f", with {sizes[variable]} values" if variable < len(sizes) else ""
            raise FormatError(
                f"{path}, byte {place}: expected one of the variables 0 to {len(sizes) - 1}, "
                f"each once at the most{expected}; got variable {variable} with {size} values"
            )
        values = np.sort(_record(path, data, place + _DOMAIN.itemsize, _VALUE, size)["value"])
        if (values[1:] == values[:-1]).any() or values[-1] > MAX_DOMAIN:
            raise FormatError(
                f"{path}, byte {place}: variable {variable}: expected values that differ, at most "
                f"{MAX_DOMAIN}"
            )
        labels[variable] = values.tolist()
        place += _DOMAIN.itemsize + size * _VALUE.itemsize
    given = {v: row for v, row in labels.items() if row != list(range(len(row)))}
    return Domains(sizes, labels=given)


def _record(
    path: Path, data: NDArray[np.uint8], place: int, kind: np.dtype[Any], count: int
) -> NDArray[Any]:
    """Return some records at a byte offset of a file."""
    end = place + count * kind.itemsize
    if end > len(data):
        raise FormatError(
            f"{path}, byte {place}: expected {count * kind.itemsize:,} more bytes, but "
            f"{max(len(data) - place, 0):,} are left"
        )
    return data[place:end].view(kind)


def _evidence(path: Path, variables: NDArray[Any], domains: Domains) -> NDArray[np.int64]:
    """Return the index of each evidence variable's value, `FREE` for the others."""
    clamped = np.full(len(variables), FREE, dtype=np.int64)
    observed = np.flatnonzero(variables["role"])
    clamped[observed] = _value_numbers(domains, observed, variables["value"][observed])
    wrong = observed[clamped[observed] == FREE]
    if len(wrong):
        raise FormatError(
            f"{path}: evidence on variable {wrong[0]} must be one of its values, got "
            f"{variables['value'][wrong[0]]}"
        )
    return clamped


def _read_factors(
    path: Path, counts: Mapping[str, int], weight: NDArray[np.float64], domains: Domains
) -> list[Literals]:
    """Read the factors, grouped by function and arity."""
    data = _read_bytes(path)
    places = _factor_places(path, data, counts)
    found = []
    for (function, arity), some in places.items():
        start = np.array(some, dtype=np.int64)
        literals = _gather(data, start + _FACTOR.itemsize, _LITERAL, arity)
        end = _gather(data, start + _FACTOR.itemsize + arity * _LITERAL.itemsize, _END, 1)[:, 0]
        _check_numbers(path, start, literals["variable"], len(domains), "variables")
        _check_numbers(path, start, end["weight"][:, None], len(weight), "weights")
        feature = end["feature"].astype(np.float64)
        with np.errstate(all="ignore"):
            scaled = weight[end["weight"].astype(np.int64)] * feature
            wrong = ~np.isfinite(feature) | ~(np.abs(scaled) <= LARGEST / 2)
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise FormatError(
                f"{path}, byte {start[k]}: expected a finite feature and weight, at most "
                f"{LARGEST / 2} in size together, got feature {feature[k]}"
            )
        variable = literals["variable"].astype(np.int64)
        found.append(
            Literals(
                function,
                variable,
                _value_numbers(domains, variable, literals["equal"]),
                scaled,
                end["weight"].astype(np.int64),
                feature,
            )
        )
    return found


def _factor_places(
    path: Path, data: NDArray[np.uint8], counts: Mapping[str, int]
) -> dict[tuple[int, int], list[int]]:
    """Return the byte offsets of the factors of each function and arity."""
    least = counts["factors"] * (_FACTOR.itemsize + _END.itemsize)
    needed = least + counts["edges"] * _LITERAL.itemsize
    if needed != len(data):
        raise FormatError(
            f"{path}, byte {min(needed, len(data))}: expected {counts['factors']:,} factors with "
            f"{counts['edges']:,} edges, {needed:,} bytes in all, got {len(data):,}"
        )
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    whole, place, edges = memoryview(data.tobytes()), 0, 0
    for number in range(counts["factors"]):
        function = int.from_bytes(whole[place : place + 2], "big")
        arity = int.from_bytes(whole[place + 2 : place + 10], "big")
        edges += arity
        if function not in FUNCTIONS or arity < 1 or edges > counts["edges"]:
            known = ", ".join(map(str, FUNCTIONS))
            raise FormatError(
                f"{path}, byte {place}: factor {number}: expected a function ({known}) of at least "
                f"one variable, and {counts['edges']:,} in all; got function {function} of {arity}"
            )
        places[function, arity].append(place)
        place += _FACTOR.itemsize + arity * _LITERAL.itemsize + _END.itemsize
    if edges != counts["edges"]:
        raise FormatError(
            f"{path}, byte {place}: expected {counts['edges']:,} edges, got {edges:,}"
        )
    return places


def _gather(
    data: NDArray[np.uint8], start: NDArray[np.int64], kind: np.dtype[Any], count: int
) -> NDArray[Any]:
    """Collect records [offset, count] from many byte offsets."""
    length = kind.itemsize * count
    windows = np.lib.stride_tricks.sliding_window_view(data, length)
    return np.ascontiguousarray(windows[start]).view(kind)


def _check_numbers(
    path: Path, start: NDArray[np.int64], numbers: NDArray[Any], count: int, what: str
) -> None:
    wrong = numbers >= count
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise FormatError(
            f"{path}, byte {start[row]}: expected {what} 0 to {count - 1}, "
            f"got {numbers[row, column]}"
        )


def _value_numbers(
    domains: Domains, variable: NDArray[np.int64], value: NDArray[Any]
) -> NDArray[np.int64]:
    """Return the indices of values in a file; `FREE` if a variable has no such value."""
    has = value < domains.sizes[variable]
    numbers = np.where(has, value, 0).astype(np.int64)
    numbers[~has] = FREE
    if domains.labels:
        labeled = np.isin(variable, list(domains.labels))
        lookup = {v: {x: k for k, x in enumerate(row)} for v, row in domains.labels.items()}
        numbers[labeled] = [
            lookup[v].get(x, FREE)
            for v, x in zip(variable[labeled].tolist(), value[labeled].tolist(), strict=True)
        ]
    return numbers
