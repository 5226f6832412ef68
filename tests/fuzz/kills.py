"""Campaigns of kills: runs that are killed repeatedly must end as if undisturbed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.paths import ROOT

SAME = "kills, same result"
RIGHT = (SAME,)
KILLS = 25  # per run
CARD_KILLS = 12  # per run on a GPU, where a child takes seconds to start
PATIENCE = 400  # seconds per run with all its kills

_EVERYTHING = ("marginals", "draws", "energy")
_PLAIN = {"updates": 2_000_000, "thin": 20_000}
_SWEEPS = {"sweeps": 200_000, "thin": 2_000}

# Model, sampler and options of `tests/running/killed.py`.
CONFIGURATIONS = {
    "gibbs": ("mixed", "gibbs-textbook", _PLAIN),
    "shuffled": ("potts", "default", {"updates": 4_000_000, "thin": 20_000, "scan": "shuffled"}),
    "shared": ("mixed", "default", {"updates": 3_000_000, "thin": 20_000, "scan": "shared"}),
    "heavy": ("mixed", "poisson-gibbs-one-heavy", _PLAIN),
    "mgpmh": ("potts", "mgpmh", _PLAIN),
    "min-gibbs": ("potts", "min-gibbs", {"updates": 150_000, "thin": 2_000, "reference": True}),
    "double-min": ("potts", "double-min", {"updates": 300_000, "thin": 3_000}),
    "poisson-mh": ("potts", "poisson-mh", _PLAIN),
    "tuna-mh": ("potts", "tuna-mh", _PLAIN),
    "local": ("mixed", "local", _PLAIN),
    "evidence": ("evidence", "default", {"updates": 3_000_000, "thin": 200_000}),
    "fields": ("ising", "fields", {"updates": 4_000_000, "thin": 20_000}),
    "kernel": ("kernel", "default", _PLAIN),
    "points": ("points", "default", _PLAIN),
    "low-rank": ("low-rank", "default", _PLAIN),
    "chromatic": ("lattice", "gibbs", {**_SWEEPS, "scan": "chromatic", "chains": 1}),
    "lockstep": ("potts-lattice", "gibbs", {"sweeps": 20_000, "thin": 200, "scan": "chromatic",
                                            "chains": 70, "record": ("marginals", "energy")}),
    "observables": ("lattice", "default", {"sweeps": 60_000, "thin": 10, "observe": True,
                                           "noticed": True}),
    "goal": ("potts", "default", {"ess": 60_000, "rhat": 1.0003, "noticed": True}),
    "tempering": ("potts", "tempering", {"sweeps": 60_000, "thin": 300}),
    "tempering, implicit": ("points", "tempering-3", {"sweeps": 30_000, "thin": 300}),
    "blocks": ("potts", "block-gibbs", {"sweeps": 400_000, "thin": 2_000}),
    "clusters": ("line", "swendsen-wang", {"sweeps": 400_000, "thin": 4_000}),
    "exact": ("mixed", "exact", {"sweeps": 400_000, "thin": 4_000}),
    "processes": ("potts", "default", {"updates": 2_000_000, "executor": "processes"}),
    "learning": ("mixed", None, {"steps": 600, "chains": 8, "missing": 0.3}),
    "learning, lockstep": ("grid", None, {"steps": 4000, "chains": 64}),
    "learning, sampler": ("mixed", "default", {"steps": 200, "chains": 4}),
    "learning, CD": ("mixed", None, {"steps": 1500, "chains": 8, "method": "cd"}),
}  # fmt: skip
_CARD = {"backend": "cuda", "sweeps": 2_000, "thin": 20, "chains": 128}
CARD = {
    "GPU": ("potts", "gibbs", _CARD),
    "GPU, tails": ("mixed", "poisson-gibbs-one-heavy", _CARD),
    "GPU, chromatic": ("lattice", "gibbs", {**_CARD, "scan": "chromatic"}),
    "GPU, observables": ("lattice", "gibbs", {**_CARD, "observe": True}),
    "GPU, tempering": ("potts", "tempering-3", _CARD),
}


def card() -> str:
    """Return the name of the GPU here, or an empty string, without using it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "one without nvidia-smi" if os.path.exists("/dev/nvidia0") else ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout else ""


def campaign(seed: int, seconds: float) -> Counter[str]:
    """Kill runs of one configuration after the other for a number of seconds."""
    deadline, found, number = time.monotonic() + seconds, Counter[str](), 0
    names = list(CONFIGURATIONS)
    while number == 0 or time.monotonic() < deadline:
        name = names[number % len(names)]
        job = Job(name, seed + number, KILLS)
        while not job.poll():
            time.sleep(0.05)
        outcome = job.outcome()
        found[SAME if outcome.get("same") else f"{name}, seed {seed + number}: {outcome}"] += (
            outcome.get("killed", 1)
        )
        number += 1
    return found


class Job:
    """One run that is killed a number of times, in its own process."""

    def __init__(self, name: str, seed: int, kills: int):
        self.name, self.seed = name, seed
        model, sampler, options = (CONFIGURATIONS | CARD)[name]
        options = {"record": _EVERYTHING, **options, "seed": seed}
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="kills-", dir=base))
        work = json.dumps([model, sampler, options, kills, str(self._folder / "run")])
        with open(self._folder / "out", "w") as out, open(self._folder / "err", "w") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.running.killed", work],
                stdout=out,
                stderr=err,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        self._begun = time.monotonic()

    def poll(self) -> bool:
        """Return whether it has ended; kill it if it hangs."""
        if self._process.poll() is not None:
            return True
        if time.monotonic() - self._begun > PATIENCE:
            self.kill()
            return True
        return False

    def kill(self) -> None:
        """End it and its children."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def outcome(self) -> dict:
        """Return its report; other output counts only if the run is not the same.

        Killed processes leave warnings about unreleased semaphores.
        """
        told, error = ((self._folder / name).read_text() for name in ("out", "err"))
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            found = json.loads(told.splitlines()[-1])
        except (IndexError, ValueError):  # it ended without a report
            found, error = {"killed": 0, "progressed": 0, "same": False}, error + told
        if error and not found["same"]:
            found["error"] = error[-500:]
        return found


@dataclass
class Killed:
    """Outcome of the kills of one configuration."""

    kills: int = 0
    runs: int = 0
    progressed: int = 0
    differences: int = 0
    failures: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Killing:
    """Runs that are killed in parallel, with a given total number of kills."""

    def __init__(self, kills: int, card_kills: int, seed: int, lanes: int, only=None):
        self.found: dict[str, Killed] = {}
        self.live: list[Job] = []
        self._lanes, self._seed = lanes, seed
        names, cards = (
            [name for name in some if not only or any(part in name for part in only)]
            for some in (CONFIGURATIONS, CARD if kills and card() else {})
        )
        on_card = min(card_kills if names else kills, kills) if cards else 0
        runs = [(cards[k % len(cards)], CARD_KILLS) for k in range(-(-on_card // CARD_KILLS))]
        left = kills - CARD_KILLS * len(runs)
        rest = [(names[k % len(names)], KILLS) for k in range(-(-left // KILLS))] if names else []
        self._left = [*runs, *rest]
        self._number = 0

    def look(self) -> None:
        """Collect runs that have ended, and start the next ones."""
        for job in [one for one in self.live if one.poll()]:
            self.live.remove(job)
            self._take(job, job.outcome())
        while self._left and len(self.live) < self._lanes:
            name, kills = self._left.pop(0)
            self.live.append(Job(name, 1000 * self._seed + self._number, kills))
            self._number += 1

    def _take(self, job: Job, outcome: dict) -> None:
        one = self.found.setdefault(job.name, Killed())
        one.kills += outcome["killed"]
        one.progressed += outcome["progressed"]
        one.runs += 1
        one.seconds += time.monotonic() - job._begun
        if outcome.get("error") or not outcome["killed"]:
            one.failures += 1
        elif not outcome["same"]:
            one.differences += 1
        if outcome.get("error") or not outcome["same"]:
            one.wrong.append(f"seed {job.seed}: {json.dumps(outcome)}")

    def cut(self) -> None:
        """Stop when the time is up: unfinished runs do not count."""
        for job in self.live:
            job.kill()
            job.outcome()
        self.live, self._left = [], []

    @property
    def done(self) -> bool:
        """Return whether all runs have ended."""
        return not self.live and not self._left

    def results(self) -> dict:
        """Return the results by configuration, as JSON."""
        return {
            name: {**vars(one), "seconds": round(one.seconds, 1)}
            for name, one in self.found.items()
        }
