"""UAI competition files: models (.uai), evidence (.evid), marginals (.MAR), partition (.PR).

`docs/formats.md` describes the supported syntax, and the pruning of states.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minigibbs.errors import FormatError
from minigibbs.formats.pruning import TableFactor, restored
from minigibbs.formats.tables import assemble, check_floor, exponentials
from minigibbs.formats.text import Numbers, write_text
from minigibbs.graph.checks import as_array
from minigibbs.graph.domains import MAX_DOMAIN, Domains, PrunedDomains
from minigibbs.graph.factors import Factors, Table, Unary
from minigibbs.graph.factors.base import FREE, General, Pairs
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.graph.graph import FactorGraph
from minigibbs.kernels.layout import EQUAL, TABLE
from minigibbs.results.result import Result
from minigibbs.results.tables import rows as run_rows

_MOST = 2**53  # of a count; floats represent integers up to here exactly
_MOST_ARITY = 32
_MOST_ENTRIES = 2**20  # of a table that is written for another kind of factor


def read(path: str | os.PathLike[str], floor: float | None = None) -> FactorGraph:
    """Read a model, `MARKOV` or `BAYES`; .gz and .xz are decompressed.

    States that a factor excludes for all states of the other variables are pruned; labels keep the
    numbers of the remaining ones.

    Parameters
    ----------
    path
        The file.
    floor
        Smaller probabilities, zeros included, are raised to it after the pruning, with a warning:
        this changes the model. By default zeros are kept.
    """
    check_floor(floor)
    sizes, factors = _parse(path)
    return assemble(path, sizes, factors, floor)


def write(graph: FactorGraph, path: str | os.PathLike[str]) -> None:
    """Write a model with its factors as tables of exp(log-potential).

    A clamped variable gets a factor that forbids its other values; pruned states get zeros. Names,
    labels and grids are lost, because the format cannot represent them.
    """
    for number, group in enumerate(graph.factors):
        _check_writable(group, number, graph.sizes)
    write_text(path, _model_text(graph))


def read_evidence(path: str | os.PathLike[str]) -> dict[int | str, int]:
    """Read evidence, variable by value, for `graph.condition`.

    Both dialects are supported: `k v1 x1 ... vk xk`, and the same after the number of evidence
    sets, which must be 1. The first has an odd number of words, the second an even one.
    """
    numbers = Numbers(path)
    if numbers.left % 2 == 0:
        numbers.integer("the number of evidence sets", 1, 1)
    pairs = numbers.left // 2
    numbers.integer(f"the number of clamped variables ({pairs} pairs follow)", pairs, pairs)
    evidence: dict[int | str, int] = {}
    for _ in range(pairs):
        variable, value = numbers.integers(2, "a variable and its value", 0, MAX_DOMAIN)
        if evidence.setdefault(variable, value) != value:
            raise numbers.error(
                f"variable {variable}: expected one value, got {evidence[variable]} and {value}",
                back=2,
            )
    return evidence


def write_evidence(evidence: Mapping[Any, int], path: str | os.PathLike[str]) -> None:
    """Write evidence, variable by value, in the one-line dialect."""
    pairs = [f"{int(variable)} {int(value)}" for variable, value in evidence.items()]
    write_text(path, [" ".join([str(len(pairs)), *pairs]), "\n"])


def read_marginals(path: str | os.PathLike[str]) -> list[NDArray[np.float64]]:
    """Read marginals (.MAR): one array per variable."""
    numbers = Numbers(path, ("MAR",))
    numbers.refuse_negative("marginals")
    count = numbers.integer("the number of variables", 0, _MOST)
    rows = []
    for variable in range(count):
        size = numbers.integer(f"the domain size of variable {variable}", 1, MAX_DOMAIN)
        rows.append(numbers.take(size, f"the marginal of variable {variable}"))
    numbers.end()
    return rows


def write_marginals(
    marginals: Result | Sequence[ArrayLike] | NDArray[np.float64],
    path: str | os.PathLike[str],
    domains: Domains | None = None,
) -> None:
    """Write marginals (.MAR), with 0 for the states that reading the model pruned.

    Parameters
    ----------
    marginals
        A run, an answer, or one row per variable.
    path
        The file.
    domains
        `graph.domains`, for rows without the pruned states.
    """
    if isinstance(marginals, Result):
        rows, domains = run_rows(marginals), domains or marginals.domains
    else:
        rows = [_read_row(variable, row) for variable, row in enumerate(marginals)]
    if domains is not None:
        rows = _full_rows(rows, domains)
    write_text(path, ["MAR\n", f"{len(rows)}", *(f" {len(r)} {_words(r)}" for r in rows), "\n"])


def _read_row(variable: int, given: ArrayLike) -> NDArray[np.float64]:
    """Convert one variable's marginal to finite numbers."""
    rule = f"marginals: row {variable} must hold one finite probability per value"
    row = as_array(given, "iufb", rule, FormatError).astype(np.float64)
    if row.ndim != 1 or not np.isfinite(row).all():
        raise FormatError(f"{rule}; got {given!r}")
    return row


def read_partition(path: str | os.PathLike[str]) -> float:
    """Read log Z (.PR) as a natural logarithm; the file has log10 Z."""
    numbers = Numbers(path, ("PR",))
    value = float(numbers.take(1, "the logarithm of Z to base 10")[0])
    if not math.isfinite(value * math.log(10)):
        raise numbers.error(f"expected a logarithm of Z that fits a double, got {value:g}", back=1)
    numbers.end()
    return value * math.log(10)


def write_partition(log_z: float, path: str | os.PathLike[str]) -> None:
    """Write a natural logarithm log Z as log10 Z (.PR)."""
    if not math.isfinite(log_z):
        raise FormatError(f"{path}: expected a finite log Z, got {log_z}")
    write_text(path, [f"PR\n{float(log_z) / math.log(10)!r}\n"])


def _parse(path: str | os.PathLike[str]) -> tuple[NDArray[np.int32], list[TableFactor]]:
    """Read the domain sizes and the factors; sizes are checked before memory is allocated."""
    numbers = Numbers(path, ("MARKOV", "BAYES"))
    count = numbers.integer("the number of variables", 1, _MOST)
    sizes = numbers.integers(count, "domain sizes", 1, MAX_DOMAIN)
    factors = numbers.integer("the number of factors", 0, _MOST)
    scopes = [_read_scope(numbers, factor, count) for factor in range(factors)]
    numbers.refuse_negative("probabilities")
    tables = [_read_table(numbers, factor, scope, sizes) for factor, scope in enumerate(scopes)]
    # Anything that follows is ignored: some programs append sections of their own.
    return np.array(sizes, dtype=np.int32), list(map(TableFactor, scopes, tables))


def _read_scope(numbers: Numbers, factor: int, variables: int) -> tuple[int, ...]:
    arity = numbers.integer(f"the number of variables of factor {factor}", 0, _MOST_ARITY)
    scope = tuple(numbers.integers(arity, f"variables of factor {factor}", 0, variables - 1))
    if len(set(scope)) != arity:
        raise numbers.error(f"factor {factor}: its variables must differ, got {scope}", back=arity)
    return scope


def _read_table(
    numbers: Numbers, factor: int, scope: tuple[int, ...], sizes: list[int]
) -> NDArray[np.float64]:
    shape = [sizes[variable] for variable in scope]
    entries = math.prod(shape)
    numbers.integer(f"the number of table entries of factor {factor}", entries, entries)
    return numbers.take(entries, f"the table of factor {factor}").reshape(shape)


def _check_writable(group: Factors, number: int, sizes: NDArray[np.int32]) -> None:
    if isinstance(group, Implicit):
        raise FormatError(
            f"{group.kind} group {number}: a .uai file lists every factor, but this group is "
            "implicit; write graph.stored() if it is small"
        )
    arity = group.scope.shape[1]
    if arity > _MOST_ARITY:
        raise FormatError(
            f"{group.where(0, number)}: a .uai file holds tables of at most {_MOST_ARITY} "
            f"variables, got {arity}"
        )
    entries = sizes.astype(np.float64)[group.scope].prod(axis=1)
    if len(group) and entries.max() > _MOST_ENTRIES and not isinstance(group, Table | Unary):
        raise FormatError(
            f"{group.where(int(entries.argmax()), number)}: a .uai file holds tables; this one "
            f"would have {entries.max():.3g} entries, and at most {_MOST_ENTRIES:,} are written"
        )


def _model_text(graph: FactorGraph) -> Iterator[str]:
    """Yield the lines of a model file: sizes, scopes, tables."""
    sizes = _full_sizes(graph.domains)
    clamped = np.flatnonzero(graph.evidence != FREE)
    groups = [group for group in graph.factors if len(group)]
    yield f"MARKOV\n{len(graph)}\n{' '.join(map(str, sizes.tolist()))}\n"
    yield f"{sum(map(len, groups)) + len(clamped)}\n"
    for group in groups:
        for row in group.scope.tolist():
            yield " ".join(map(str, [len(row), *row])) + "\n"
    yield from (f"1 {variable}\n" for variable in clamped)
    for group in groups:
        for factor, energy in enumerate(factor_energies(group, graph.sizes)):
            table = _probabilities(energy, group, factor)
            yield _table_text(restored(table, group.scope[factor].tolist(), graph.domains))
    for variable in clamped:
        table = np.zeros(graph.sizes[variable])
        table[graph.evidence[variable]] = 1.0
        yield _table_text(restored(table, [int(variable)], graph.domains))


def _table_text(table: NDArray[np.float64]) -> str:
    return f"\n{table.size}\n{_words(table.ravel())}\n"


def _words(values: NDArray[np.float64]) -> str:
    """Format numbers as text that is read back exactly."""
    return " ".join(map(repr, values.tolist()))


def factor_energies(group: Factors, sizes: NDArray[np.int32]) -> Iterator[NDArray[np.float64]]:
    """Yield every factor of a group as a table; the group's constant is divided among them."""
    flat = group.lower(sizes, np.full(len(sizes), FREE, dtype=np.int32))
    for factor, scope in enumerate(flat.scope):
        shape = tuple(sizes[scope].tolist())
        values = _form(flat, factor, shape)
        yield flat.weight[factor] * values + flat.offset / len(group)


def _form(flat: Pairs | General, factor: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a factor as a table, without its weight."""
    if isinstance(flat, Pairs):
        return np.eye(shape[0], shape[1])
    if flat.form == TABLE:
        start = int(flat.table_start[factor])
        return flat.table[start : start + math.prod(shape)].reshape(shape)
    values = np.zeros(shape)
    key = flat.key[factor]
    values[tuple(key)] = 1.0
    if flat.form == EQUAL:
        values[tuple(1 - key)] = 1.0
    return values


def _probabilities(energy: NDArray[np.float64], group: Factors, factor: int) -> NDArray[np.float64]:
    try:
        return exponentials(energy)
    except OverflowError as error:
        raise FormatError(f"{group.where(factor)}: a .uai file cannot hold {error}") from None


def _full_sizes(domains: Domains) -> NDArray[np.int32]:
    """Return the numbers of states before pruning."""
    return domains.full_sizes if isinstance(domains, PrunedDomains) else domains.sizes


def _full_rows(rows: Sequence[NDArray[np.float64]], domains: Domains) -> list[NDArray[np.float64]]:
    """Return rows over all states, with zeros for pruned ones."""
    if len(rows) != len(domains):
        raise FormatError(
            f"marginals: expected {len(domains)} rows, one per variable, got {len(rows)}"
        )
    full = []
    for variable, row in enumerate(rows):
        size = int(domains.sizes[variable])
        if row.ndim != 1 or len(row) < size:
            raise FormatError(
                f"marginals of {domains.describe(variable)}: expected {size} numbers, got shape "
                f"{row.shape}"
            )
        full.append(restored(row[:size], [variable], domains))
    return full
