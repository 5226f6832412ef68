"""The registry of layouts: the only place that chooses layouts, complete on every device."""

import ast
from pathlib import Path

import pytest

import minigibbs as mg
from minigibbs.running.backends.cuda import GROUPS
from minigibbs.samplers import registry
from minigibbs.samplers.registry import CUDA, LAYOUTS, chromatic_layout

SOURCE = Path(mg.__file__).parent
REGISTRY = Path(registry.__file__)


def deciding(text):
    """Return lines that define or use another `fits`."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.endswith(("fits", "s_fit", "l_fit")):
                lines.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr == "fits":
            lines.append(node.lineno)
    return lines


def test_only_the_registry_decides_which_layout_fits():
    for path in SOURCE.rglob("*.py"):
        found = deciding(path.read_text())
        assert path == REGISTRY or not found, (str(path), found)
    assert deciding(REGISTRY.read_text())


@pytest.mark.parametrize(
    "line", ["def spins_fit(graph): pass", "def fits(graph): pass", "SPINS.fits(graph)"]
)
def test_another_decision_would_be_noticed(line):
    assert deciding(line) == [1]


def test_every_layout_of_a_gpu_has_a_group_there():
    assert {layout.data for layout in LAYOUTS if CUDA in layout.devices} == set(GROUPS)


def test_names_and_arrays_tell_layouts_apart():
    for key in ("name", "data"):
        assert len({getattr(layout, key) for layout in LAYOUTS}) == len(LAYOUTS)


def test_a_layout_that_a_device_lacks_is_refused():
    """This also holds after the CPU has prepared it."""
    graph = mg.FactorGraph([2] * 3, [mg.Table([[0, 1, 2]], [[[0.0, 1], [1, 0]], [[0, 1], [1, 1]]])])
    assert chromatic_layout(mg.Gibbs(), graph).name == "general"
    with pytest.raises(mg.SampleError, match='backend="cuda" is for variables of few values'):
        chromatic_layout(mg.Gibbs(), graph, CUDA)


def test_a_scan_without_a_layout_says_why():
    graph = mg.FactorGraph([2] * 5, [mg.Complete(5, 0.1)])
    with pytest.raises(mg.SampleError, match="implicit ones, which join all variables"):
        chromatic_layout(mg.PoissonGibbs(), graph)
    with pytest.raises(mg.SampleError, match='"chromatic" is for Gibbs and PoissonGibbs'):
        chromatic_layout(mg.MinGibbs(), graph)
