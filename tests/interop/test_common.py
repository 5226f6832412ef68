"""Properties of all libraries: imported on use, and an install line if missing."""

import subprocess
import sys

import pytest

import minigibbs as mg
from minigibbs.interop.common import unique_names
from tests.zoo import ZOO

LIBRARIES = [
    "arviz_base",
    "arviz_plots",
    "dimod",
    "jax",
    "networkx",
    "numpyro",
    "pandas",
    "pgmpy",
    "pyagrum",
    "pymc",
    "torch",
    "scipy",
    "xarray",
]


def test_no_library_is_imported_before_it_is_used():
    code = f"""
import sys
import minigibbs as mg
mg.interop, mg.__all__, dir(mg.interop)
assert not [name for name in {LIBRARIES} if name in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_is_there_without_any_of_the_libraries():
    code = f"""
import sys
for name in {LIBRARIES[:11]}:
    sys.modules[name] = None
from minigibbs import *
assert ising_from_matrix([[0, 1], [1, 0]]).log_potential([1, 1]) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def run():
    record = ("marginals", "draws")
    return mg.sample(ZOO["potts"], updates=40, seed=1, progress=False, record=record)


NEEDS = {
    "arviz_base": ("arviz", lambda: run().to_arviz()),
    "networkx": ("networkx", lambda: mg.to_networkx(ZOO["potts"])),
    "pandas": ("pandas", lambda: run().to_pandas()),
    "pgmpy.models": ("pgmpy", lambda: mg.to_pgmpy(ZOO["potts"])),
    "pyagrum": ("pyagrum", lambda: mg.to_pyagrum(ZOO["potts"])),
}


@pytest.mark.parametrize("library", NEEDS)
def test_a_missing_library_is_named_with_its_extra(library, monkeypatch):
    extra, use = NEEDS[library]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(mg.MissingDependencyError, match=rf'pip install "minigibbs\[{extra}\]"'):
        use()


def test_the_sampler_without_dimod():
    """Run in a separate process, since dimod's classes are the bases of the sampler."""
    code = """
import sys
sys.modules["dimod"] = None
import minigibbs as mg
try:
    mg.interop.dimod
except mg.MissingDependencyError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert 'pip install "minigibbs[dimod]"' in result.stdout


@pytest.mark.parametrize(
    ("bridge", "library", "extra"),
    [
        ("jax", "jax", "numpyro"),
        ("numpyro", "jax", "numpyro"),
        ("pymc", "pymc", "pymc"),
        ("torch", "torch", "torch"),
    ],
)
def test_a_bridge_without_its_library(bridge, library, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    for name in (f"minigibbs.{bridge}", f"minigibbs.interop.{library}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(vars(mg), bridge, raising=False)  # another test may have imported it
    with pytest.raises(mg.MissingDependencyError, match=rf'pip install "minigibbs\[{extra}\]"'):
        getattr(mg, bridge)


def test_unknown_libraries():
    with pytest.raises(AttributeError, match="tensorflow"):
        _ = mg.interop.tensorflow
    assert "dimod" in dir(mg.interop)


def test_names_are_unique_whatever_the_labels():
    class Same:
        def __str__(self):
            return "same"

    names = unique_names(["same", Same(), Same(), 1, 1.0, "1", "1 (int)"])
    assert len(set(names)) == 7
    assert names[0] == "same"
    assert names[5:] == ["1", "1 (int)"]
    assert unique_names(["a", "a", "a 2", "a"]) == ["a", "a 3", "a 2", "a 4"]


def test_no_two_public_names_differ_in_case_alone():
    assert len({name.lower() for name in mg.__all__}) == len(mg.__all__)


def test_every_library_that_is_listed_can_be_imported():
    for name in dir(mg.interop):
        assert getattr(mg.interop, name).__name__ == f"minigibbs.interop.{name}"
