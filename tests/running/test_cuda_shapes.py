"""Launch shapes are within the limits of a device for any number of chains and variables."""

import ast
import itertools
from pathlib import Path

import pytest

import minigibbs as mg
from minigibbs.running.backends.device.shapes import LIMITS, configure, launch_shape
from minigibbs.samplers.chromatic.places import BLOCK_SIZE

SOURCE = Path(mg.__file__).parent
BACKENDS = SOURCE / "running" / "backends"
CHAINS = [1, 31, 32, 33, 65_535, 65_536, 131_072, 2_097_120, 2_097_152, 4_194_304]
VARIABLES = [1, 8, 100, 10**6, 10**8]
THREADS = 128


def within_limits(shape):
    grid, block = shape
    assert len(grid) == len(block) <= 3
    product = 1
    for count, most in zip(grid, LIMITS.grid, strict=False):
        assert 1 <= count <= most
    for threads in block:
        product *= threads
    assert 1 <= product <= LIMITS.threads


@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("variables", VARIABLES)
def test_every_launch_is_within_the_limits_and_covers_its_items(chains, variables):
    one = launch_shape(chains, THREADS)
    within_limits(one)
    assert one.grid[0] * THREADS >= chains > (one.grid[0] - 1) * THREADS
    for items, threads in [
        ((chains, variables), (THREADS, 1)),
        ((variables, chains), (32, 32)),
        ((variables * THREADS, 64, chains), THREADS),
    ]:
        grid, block = shape = launch_shape(items, threads)
        within_limits(shape)
        assert grid[0] * block[0] >= items[0]
        for axis in range(1, len(items)):  # capped, or all blocks
            assert grid[axis] == min(-(-items[axis] // block[axis]), LIMITS.grid[axis])


@pytest.mark.parametrize("chains", CHAINS)
@pytest.mark.parametrize("variables", VARIABLES)
def test_a_folded_axis_has_all_its_blocks(chains, variables):
    """Launches of a color have blocks of places, and columns of chains or words."""
    for columns in (chains, -(-chains // 32)):
        across = -(-BLOCK_SIZE * columns // THREADS)
        blocks = -(-variables // BLOCK_SIZE)
        grid, block = shape = launch_shape((blocks * THREADS, across), THREADS, folded=True)
        within_limits(shape)
        assert (grid[0], block) == (blocks, (THREADS, 1, 1))
        assert across <= grid[1] * grid[2] < across + grid[2]  # fewer than one more per layer


@pytest.mark.parametrize(
    ("items", "grid"), [((999, 1), (8, 1)), ((256, 9), (2, 6)), ((9**6, 9), (12, 1))]
)
def test_a_grid_whose_blocks_wait_for_each_other_is_limited(items, grid):
    assert launch_shape(items, (THREADS, 1), most=12) == (grid, (THREADS, 1))


@pytest.mark.parametrize("count", [0, 1])
def test_a_launch_has_a_block_at_least(count):
    assert launch_shape(count, 32) == ((1,), (32,))
    assert launch_shape((count, count), 32, folded=True) == ((1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize(
    ("items", "threads", "options", "what"),
    [
        (2**38 + 1, THREADS, {}, "2,147,483,649 blocks along the first axis"),
        ((1, 2**33), 1, {"folded": True}, "131,075 blocks along the folded axis"),
        ((4, 4), (64, 32), {}, "2,048 threads per block"),
        (4, 64, {"shared": 10**5}, "100,000 bytes of shared memory"),
    ],
)
def test_what_a_device_cannot_launch_is_refused(items, threads, options, what):
    with pytest.raises(mg.TooLargeError, match=what):
        launch_shape(items, threads, **options)


def kernel_names():
    """Return the kernels, and functions that make them, in `cuda_*` modules."""
    names = set()
    for path in BACKENDS.glob("cuda_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                marks = {ast.unparse(one).split("(")[0] for one in node.decorator_list}
                if marks & {"cuda.jit", "entry", "cache", "lru_cache"}:
                    names.add(node.name)
    return names


class WithoutDeviceCode(ast.NodeTransformer):
    """Removes device code, in which names are arrays."""

    def visit_FunctionDef(self, node):
        marks = {ast.unparse(one).split("(")[0] for one in node.decorator_list}
        if marks & {"cuda.jit", "entry", "literal", "kernel", "_device", "intrinsic"}:
            return ast.Pass()
        return self.generic_visit(node)


def configured_elsewhere(text, names):
    """Return lines that index a kernel, or a name to which one was assigned."""
    lines = []
    for function in ast.walk(WithoutDeviceCode().visit(ast.parse(text))):
        if not isinstance(function, ast.FunctionDef):
            continue
        held = set(names)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and is_kernel(node.value, held):
                targets = itertools.chain.from_iterable(map(ast.walk, node.targets))
                held |= {target.id for target in targets if isinstance(target, ast.Name)}
        for node in ast.walk(function):
            if isinstance(node, ast.Subscript) and is_kernel(node.value, held):
                lines.append(node.lineno)
    return lines


def is_kernel(node, names):
    """Return whether an expression is one of these names, or an attribute or call of one."""
    if isinstance(node, ast.Tuple):
        return any(is_kernel(part, names) for part in node.elts)
    if isinstance(node, ast.IfExp):
        return is_kernel(node.body, names) or is_kernel(node.orelse, names)
    if isinstance(node, ast.Call):
        return is_kernel(node.func, names)
    if isinstance(node, ast.Attribute):
        return node.attr in names
    return isinstance(node, ast.Name) and node.id in names


def test_every_launch_gets_its_shape_from_one_function():
    """Only `configure` indexes kernels."""
    names = kernel_names()
    assert {"advance", "advance_wide", "sweep_color", "to_variables", "count_marks"} <= names
    sources = [*sorted(BACKENDS.rglob("*.py")), SOURCE / "learning" / "device.py"]
    assert sum("configure(" in path.read_text() for path in sources) > 5
    for path in sources:
        lines = configured_elsewhere(path.read_text(), names)
        assert lines == [] or path == BACKENDS / "device" / "shapes.py", (path.name, lines)


@pytest.mark.parametrize(
    "line",
    [
        "self.kernels.turn[self._tiles(piece), _TILE](array)",
        "run = own.walk(kind)[blocks, threads]",
        "kernel, ends = own.sweep_color(domain), ends\n    run = kernel[(blocks, 1), 128]",
        "kernel = self.kernels.advance_wide if wide else other\n    kernel[grid, threads](x)",
    ],
)
def test_a_launch_with_a_shape_of_its_own_would_be_noticed(line):
    assert configured_elsewhere(f"def f(self):\n    {line}\n", kernel_names())


def test_numba_configures_kernels_with_these_shapes():
    """The index has Numba's entries: a grid, a block, a stream, bytes of shared memory."""

    class Kernel:
        def __getitem__(self, configuration):
            return configuration

    made = configure(Kernel(), (1000, 7), (32, 4), shared=64)
    assert made == ((32, 2), (32, 4), 0, 64)
