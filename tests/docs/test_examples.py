"""The gallery: every example is short, runs alone, prints its finding and draws its picture."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PNG = b"\x89PNG"
# Words that an example must print: its finding, not only that it ran.
FINDINGS = {
    "asia": "exact",
    "critical_point": "the two largest cross at 0.44",
    "critical_spins": "in the limit 0.6586",
    "denoise": "cleaned",
    "dirty_table": "52 of them rightly",
    "fully_connected": "updates/s",
    "many_chains": "updates/s",
    "mean_field": "off by",
    "photograph": "pixels",
    "rbm_digits": "the machine -15.",  # pixels alone give -26
    "rna_family": "of the 21 strongest pairs 21 are in the fold",
    "segmentation": "with trained couplings",
    "spin_glass": "round trips",
    "torch_rbm": "-2.68 trained",
    "who_is_who": "recall 9",  # in per cent, of pairs
}


def _gallery():
    spec = importlib.util.spec_from_file_location("docs_gallery", ROOT / "docs" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = _gallery()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(path, tmp_path):
    pytest.importorskip("matplotlib")
    if "import torch" in path.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    result = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "agg"},
    )
    assert result.returncode == 0, result.stderr
    assert FINDINGS.get(path.stem, "") in result.stdout
    assert result.stdout.strip()
    assert [made.name for made in tmp_path.iterdir()] == [f"{path.stem}.png"]
    if path.stem == "denoise":
        seen, cleaned = (float(word) for word in result.stdout.split()[2:5:2])
        assert cleaned > seen + 0.1


@pytest.mark.parametrize("example", gallery.examples(), ids=lambda example: example.path.stem)
def test_example_is_ready_for_the_gallery(example):
    assert len(example.path.read_text(encoding="utf-8").splitlines()) < 100
    assert example.title
    assert example.text
    assert example.picture.read_bytes().startswith(PNG), "run `make gallery`"
    assert example.printed.read_text(encoding="utf-8").strip(), "run `make gallery`"


def test_gallery_keeps_nothing_of_examples_that_are_gone():
    assert {path.stem for path in gallery.FOLDER.iterdir()} == {path.stem for path in EXAMPLES}
