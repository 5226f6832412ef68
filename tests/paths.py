"""Paths of files, for tests."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DATA = ROOT.parent / "shared" / "data"  # real models with known answers, if available
LAWN = TESTS / "models" / "sprinkler.bif"
