"""Only one package uses numba-cuda; some kernels also compile with its successor."""

import ast
import importlib
import types

import pytest

from tests.paths import ROOT
from tests.running.test_cuda_shapes import kernel_names

SOURCE = ROOT / "src" / "minigibbs"
PACKAGE = SOURCE / "running" / "backends" / "device"
FOREIGN = ("numba.cuda", "numba_cuda", "numba_cuda_mlir", "cuda")


def imported(text):
    """Return the full names of all imports of a module, in any function."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return {name for name in names if any(f"{name}.".startswith(f"{one}.") for one in FOREIGN)}


def test_only_the_device_package_imports_numba_cuda():
    found = {path for path in SOURCE.rglob("*.py") if imported(path.read_text())}
    assert {path.name for path in found} == {"access.py", "launch.py", "toolchain.py"}
    assert {path.parent for path in found} == {PACKAGE}


@pytest.mark.parametrize(
    "line",
    [
        "import numba.cuda",
        "from numba import cuda",
        "from numba.cuda.extending import overload",
        "def f():\n    from numba_cuda_mlir import cuda",
        'core = import_module("cuda.core")',
    ],
)
def test_an_import_elsewhere_would_be_noticed(line):
    assert imported(line)


def test_every_kernel_is_compiled_by_a_test():
    """Every kernel's name appears in `test_cuda`, which compiles kernels to PTX."""
    text = (ROOT / "tests" / "running" / "test_cuda.py").read_text()
    names = {name for name in kernel_names() if not name.startswith("_")}
    assert {name for name in names if f".{name}" not in text} == set()


def kernels():
    """Return kernels that call no function compiled by Numba, and their argument types."""
    from numba_cuda_mlir import types as of
    from numba_cuda_mlir.numba_cuda.types import NamedTuple

    from minigibbs.running.backends import cuda_bits, cuda_counts, cuda_points, cuda_sums
    from minigibbs.running.backends import cuda_kernels as plain
    from minigibbs.running.backends import cuda_ladder_kernels as ladders
    from minigibbs.running.backends import cuda_level_kernels as small
    from minigibbs.running.backends import cuda_stencil as stencil

    def array(kind, dimensions):
        return of.Array(kind, dimensions, "C")

    number, words, word = of.int64, array(of.uint32, 1), of.uint32
    x, counts, places = array(of.uint8, 2), array(of.int64, 2), array(of.int32, 1)
    first, states, parts = array(of.int64, 1), array(of.uint8, 3), array(of.float64, 3)
    bits, energy, values = array(word, 2), array(of.float64, 2), array(of.uint8, 1)
    kept, pieces, reals = array(of.int32, 3), array(of.int32, 2), array(of.float64, 1)
    slots = NamedTuple((first, first, reals, number), small.Levels)
    one, two = first, counts
    terms = NamedTuple((places, one, one, two, one, two, two, one), small.Terms)
    return {
        plain.count_values: (x, first, counts),
        plain.count_wide: (x, first, counts),
        plain.keep_states: (x, first, places, number, states),
        plain.sum_parts: (parts, energy),
        plain.average_rows: (parts, number, number, parts),
        plain.turn: (x, number, x, of.boolean),
        cuda_bits.count_bits: (bits, number, bits),
        cuda_bits.count_changes: (words, words, number, number, number, first),
        cuda_bits.flush_counts: (array(word, 3), places, first, first, number, counts),
        cuda_bits.sum_energies: (parts, first, of.float64, number, energy),
        cuda_bits.read_bits: (bits, places, values, number, x),
        cuda_bits.keep_bits: (bits, places, values, first, places, number, states),
        cuda_bits.spread_bits: (bits, places, values, x),
        cuda_bits.clear: (words,),
        ladders.swap_levels: (words, number, number, number, number, number, bits, bits, words),
        ladders.spread_states: (bits, number, bits),
        ladders.find_best: (counts, number, number, number, first, first),
        ladders.keep_best: (first, number, bits, bits),
        small.read_keys: (energy, number, bits),
        small.add_level_energies: (terms, slots, number, counts, x),
        small.find_best: (counts, first, first),
        small.keep_best: (first, slots, places, x, x),
        stencil.count_ones: (words, number, number, array(of.int64, 3)),
        stencil.add_energies: (counts, first, reals, of.float64, of.float64, number, energy),
        cuda_sums.count_values: (bits, places, first, pieces, number, number, number, kept),
        cuda_sums.begin_sums: (places, kept),
        cuda_counts.mark_values: (x, places, places, bits),
        cuda_counts.mark_bits: (bits, places, places, number, bits),
        cuda_counts.count_marks: (bits, places, places, places),
        cuda_points.to_variables: (x, places, x),
        cuda_points.to_places: (x, places, x),
    }


def shared_functions(kernel):
    """Return the functions that a kernel calls, except those of `cuda` and types of NumPy."""
    names = kernel.py_func.__code__.co_names
    found = (kernel.py_func.__globals__.get(name) for name in names)
    return [one for one in found if callable(one) and not isinstance(one, type)]


def test_no_kernel_without_shared_functions_is_missing():
    """The table below names every kernel that the successor could compile; see ADR 18."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    pytest.importorskip("numba_cuda_mlir", reason="numba-cuda-mlir is not installed")
    modules = [
        importlib.import_module(f"minigibbs.running.backends.{path.stem}")
        for path in PACKAGE.parent.glob("cuda_*.py")
    ]
    own = {
        one.py_func
        for module in modules
        for one in vars(module).values()
        if type(one).__name__ == "CUDADispatcher" and one.py_func.__module__ == module.__name__
    }
    assert len(own) > 40
    known = {kernel.py_func for kernel in kernels()}
    assert known <= own
    simple = {f for f in own if not shared_functions(types.SimpleNamespace(py_func=f))}
    missing = {f.__qualname__ for f in simple - known}
    assert {name for name in missing if not name.startswith("_")} == set()  # device functions


@pytest.fixture
def successor(monkeypatch):
    """Return a function that compiles a kernel to PTX with numba-cuda-mlir."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    pytest.importorskip("numba_cuda_mlir", reason="numba-cuda-mlir is not installed")
    from numba_cuda_mlir import cuda, tools

    # It queries the device even if an architecture is given.
    monkeypatch.setattr(tools, "_cached_cc", (9, 0))

    def compiled(function, arguments):
        known = {**function.__globals__, "cuda": cuda}
        own = types.FunctionType(
            function.__code__, known, function.__name__, None, function.__closure__
        )
        text, _ = cuda.compile_ptx(own, arguments, cc=(9, 0), device=False)
        return text

    return compiled


def test_kernels_without_shared_functions_compile_with_the_successor(successor):
    for kernel, arguments in kernels().items():
        assert ".visible .entry" in successor(kernel.py_func, arguments), kernel.py_func.__name__


def test_functions_that_numba_compiles_are_still_refused_by_the_successor(successor):
    """If this fails, the move to the successor has become cheap; see ADR 18."""
    from numba_cuda_mlir import types as of

    from minigibbs.running.backends.cuda_bits import first_bits

    arguments = (of.Array(of.int32, 1, "C"), of.int64, of.int64, of.Array(of.uint32, 2, "C"))
    with pytest.raises(AssertionError, match="Dispatcher"):
        successor(first_bits.py_func, arguments)


def test_the_successor_compiles_calls_of_its_own_functions(successor):
    """If shared functions were compiled once more for it, kernels that call them could move."""
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir import types as of

    double = cuda.jit(device=True)(lambda value: 2.0 * value)
    shared = cuda.jit(device=True)(lambda value: double(value) + 1.0)

    def kernel(x):
        x[cuda.grid(1)] = shared(x[cuda.grid(1)])

    assert ".visible .entry" in successor(kernel, (of.Array(of.float64, 1, "C"),))
