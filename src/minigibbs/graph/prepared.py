"""One store per graph for everything that is computed once: keyed, thread-safe, freed with it.

An entry has a kind, such as "split", and a key within its kind. The first thread that requests an
entry computes it while the others wait. Computing an entry may request entries of other kinds.
Graphs do not pickle or copy their store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from minigibbs.graph.graph import FactorGraph

STORE = "_prepared"  # the graph's attribute with its store
SHARED = "_shared"  # the same for the store that graphs with other evidence or weights share

T = TypeVar("T")


def prepared(
    graph: FactorGraph, kind: str, key: Hashable, make: Callable[[], T], most: int = 2
) -> T:
    """Return a graph's entry, computed by the first call.

    Parameters
    ----------
    graph
        The graph that owns the entry.
    kind
        The kind of the entry.
    key
        The values on which the entry depends besides the graph. An unhashable key is never stored.
    make
        Computes the entry. If it raises, the next call computes the entry again.
    most
        Number of entries of this kind to keep; the oldest is dropped for a new one.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> prepared(graph, "size", 2, lambda: len(graph) ** 2)
    256
    >>> prepared(graph, "size", 2, lambda: 0)
    256
    """
    try:
        hash(key)
    except TypeError:
        return make()
    found: T = _store(graph).get(kind, key, make, most)
    return found


def shared(graph: FactorGraph, kind: str, key: Hashable, make: Callable[[], T], most: int = 2) -> T:
    """Do the same as `prepared`, for entries that are valid with other evidence or weights.

    >>> import minigibbs as mg
    >>> graph = mg.models.ising_lattice(side=4, beta=0.2)
    >>> shared(graph, "answer", 1, lambda: "computed once")
    'computed once'
    >>> shared(graph.condition({0: 1}), "answer", 1, lambda: "computed again")
    'computed once'
    """
    found: T = _store(graph, SHARED).get(kind, key, make, most)
    return found


def share(graph: FactorGraph, other: FactorGraph) -> FactorGraph:
    """Let a graph use the shared entries of another one; return the graph."""
    vars(graph)[SHARED] = _store(other, SHARED)
    return graph


def forget(graph: FactorGraph, kind: str) -> None:
    """Drop all entries of one kind."""
    _store(graph).forget(kind)


def _store(graph: FactorGraph, name: str = STORE) -> _Store:
    own = vars(graph)
    store = own.get(name)
    if store is None:  # with concurrent threads the first new store wins
        store = own.setdefault(name, _Store())
    return store  # type: ignore[no-any-return]


class _Entry:
    """A value that is computed under a lock."""

    def __init__(self) -> None:
        self.lock, self.value, self.made = RLock(), None, False


class _Store:
    """Entries by kind and key."""

    def __init__(self) -> None:
        self._lock, self._kinds = Lock(), dict[str, dict[Hashable, _Entry]]()

    def get(self, kind: str, key: Hashable, make: Callable[[], Any], most: int) -> Any:
        with self._lock:
            entries = self._kinds.setdefault(kind, {})
            entry = entries.get(key)
            if entry is None:
                while len(entries) >= most:
                    del entries[next(iter(entries))]
                entry = entries[key] = _Entry()
        with entry.lock:
            if not entry.made:
                entry.value, entry.made = make(), True
            return entry.value

    def forget(self, kind: str) -> None:
        with self._lock:
            self._kinds.pop(kind, None)
