"""Campaigns of kills: runs that are killed again and again must end as if undisturbed."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.paths import ROOT

SAME = "kills, same result"
RIGHT = (SAME,)
KILLS = 25  # of each run

# Model, sampler and options of `tests/running/killed.py`.
CONFIGURATIONS = {
    "shuffled": ("potts", "default", {"updates": 4_000_000, "thin": 20_000, "scan": "shuffled"}),
    "shared": ("mixed", "default", {"updates": 3_000_000, "thin": 20_000, "scan": "shared"}),
    "min-gibbs": ("potts", "min-gibbs", {"updates": 150_000, "thin": 2_000, "reference": True}),
    "evidence": ("evidence", "default", {"updates": 3_000_000, "thin": 200_000}),
    "fields": ("ising", "fields", {"updates": 4_000_000, "thin": 20_000}),
    "goal": ("potts", "default", {"ess": 60_000, "rhat": 1.0003}),
    "tempering": ("potts", "tempering", {"sweeps": 60_000, "thin": 300}),
    "blocks": ("potts", "block-gibbs", {"sweeps": 400_000, "thin": 2_000}),
    "processes": ("potts", "default", {"updates": 2_000_000, "executor": "processes"}),
}


def campaign(seed: int, seconds: float) -> Counter[str]:
    """Kill runs of one configuration after the other for so long."""
    deadline, found, number = time.monotonic() + seconds, Counter[str](), 0
    names = list(CONFIGURATIONS)
    while number == 0 or time.monotonic() < deadline:
        name = names[number % len(names)]
        outcome = kill(name, seed + number, KILLS)
        found[SAME if outcome.get("same") else f"{name}, seed {seed + number}: {outcome}"] += (
            outcome.get("killed", 1)
        )
        number += 1
    return found


def kill(name: str, seed: int, kills: int) -> dict:
    """Kill one run so many times; returns what `killed.py` reports, or its error."""
    model, sampler, options = CONFIGURATIONS[name]
    options = {**options, "seed": seed, "record": ("marginals", "draws", "energy")}
    with tempfile.TemporaryDirectory() as folder:
        work = json.dumps([model, sampler, options, kills, str(Path(folder) / "run")])
        done = subprocess.run(
            [sys.executable, "-m", "tests.running.killed", work],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return json.loads(done.stdout) if done.stdout else {"error": done.stderr[-500:]}
