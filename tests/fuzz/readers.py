"""Everything that reads files: valid ones to begin with, and how each is read and used."""

import gzip
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import minigibbs as mg
from minigibbs.formats import FORMATS, uai
from tests.formats import test_dimmwitted
from tests.formats.test_uai import SMALL
from tests.harness import sample
from tests.paths import LAWN
from tests.zoo import IMPLICIT, ZOO

Files = dict[str, bytes]  # by name: a single file, or a folder's


class Reader(NamedTuple):
    """One way to read files."""

    valid: Callable[[], list[Files]]  # what it reads
    read: Callable[[Path, Files], Any]  # given the folder that they lie in
    use: Callable[[Any], Any]  # a look at what was read
    archive: str | None = None  # "plain" or "sealed": an archive of ours, to be changed as such
    endings: tuple[str, ...] = ()  # of `FORMATS`


def only(folder, files):
    return folder / next(iter(files))


def use_graph(graph):
    """Energies are numbers, or zeros' -inf, and the graph can be described and packed."""
    start = np.where(graph.evidence < 0, 0, graph.evidence)
    assert graph.energy(start) < np.inf, "an energy that is no number"
    graph.describe()
    repr(graph)
    assert graph.packed is not None


def use_number(found):
    assert np.isfinite(found), "a number that is not finite"


def check_run(run):
    """What was counted is not negative."""
    assert (run.clock >= 0).all(), "a negative clock"
    assert (run.visits >= 0).all(), "negative visits"
    assert run.counts is None or (run.counts >= 0).all(), "negative counts"
    repr(run)


def use_run(run):
    """A run that was read can be looked at."""
    check_run(run)
    str(run.summary())


def in_folder(write):
    """The files that something writes into a folder."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return {
            str(path.relative_to(name)): path.read_bytes()
            for path in sorted(Path(name).rglob("*"))
            if path.is_file() and path.name != "lock"
        }


def _models():
    named = mg.FactorGraph(
        [mg.Grid(-1.0, 2.5, 4), 3, 2],
        [mg.Unary([0], [[0.1, 0.2, 0.3, 0.4]]), mg.Potts([1], [2], 0.1)],
        names=["height", "sky", "wet é"],
        labels={"sky": ["blue", "grey", "black"], 2: [10, 20]},
    ).condition({"sky": "grey"})
    pruned = mg.read(LAWN.parent / "sprinkler.bif")
    graphs = [*ZOO.values(), *IMPLICIT.values(), named, pruned]
    return [in_folder(lambda folder, g=g: mg.write(g, folder / "model.mg")) for g in graphs]


EVERYTHING = ("marginals", "draws", "energy")


def _runs():
    several = []
    for name, record in (("potts", EVERYTHING), ("evidence", "marginals"), ("mixed", "draws")):
        reference = np.full((len(ZOO[name]), ZOO[name].sizes.max()), 0.5)
        options = {"reference": reference} if "marginals" in record else {}
        run = sample(ZOO[name], updates=60, thin=3, record=record, seed=1, chains=2, **options)
        several.append(in_folder(lambda folder, run=run: run.save(folder / "a.run")))
    return several


def _checkpoints():
    """Runs that have not ended: one with a goal, one of a fixed length."""

    def goal(folder):
        options = {"rhat": 1.0001, "ess": None, "max_time": 0, "chains": 2, "progress": False}
        mg.sample_until(ZOO["potts"], record=EVERYTHING, checkpoint=folder, **options)

    def plain(folder):
        options = {"updates": 60, "thin": 3, "seed": 1, "chains": 2, "scan": "shuffled"}
        sample(ZOO["evidence"], record=EVERYTHING, checkpoint=folder, progress=False, **options)
        mg.resume(folder, updates=30, progress=False)

    return [in_folder(goal), in_folder(plain)]


def look_and_resume(folder, files):
    """Read a checkpoint both ways; what is left to run is cut short."""
    run = mg.load(folder)
    resumed = mg.resume(folder, updates=5, max_time=0.02, threads=1, progress=False)
    return run, resumed


def use_both(runs):
    for run in runs:
        check_run(run)


def _dimmwitted():
    def write(folder):
        boolean, three = test_dimmwitted.BOOLEAN, test_dimmwitted.THREE
        factors = [
            (f, [(0, 1), (1, 0), (2, 1)], f % 2, 0.5) for f in test_dimmwitted.FUNCTIONS if f != 4
        ]
        variables = [boolean, (1, 1, 0, 2), three]
        test_dimmwitted.written(folder, variables, factors, [1.4, -0.3], {2: [1, 5, 9]})

    return [in_folder(write)]


SETS = "2 0 1 2 0\n", "1 2 0 1 2 0\n"
MARGINALS = "MAR\n3 2 0.25 0.75 3 0.1 0.2 0.7 1 1.0\n"
BIF = LAWN.read_bytes()
UAI = SMALL.encode()

READERS = {
    "mg": Reader(_models, lambda f, n: mg.load(only(f, n)), use_graph, "plain", (".mg",)),
    "uai": Reader(
        lambda: [{"a.uai": UAI}, {"b.uai": UAI.replace(b"MARKOV", b"BAYES")}],
        lambda f, n: mg.load(only(f, n)),
        use_graph,
        endings=(".uai",),
    ),
    "uai-packed": Reader(
        lambda: [{"a.uai.gz": gzip.compress(UAI)}, {"a.uai.xz": lzma.compress(UAI)}],
        lambda f, n: mg.load(only(f, n)),
        use_graph,
        endings=(".uai.gz", ".uai.xz"),
    ),
    "bif": Reader(
        lambda: [{"a.bif": BIF}], lambda f, n: mg.load(only(f, n)), use_graph, endings=(".bif",)
    ),
    "bif-packed": Reader(
        lambda: [{"a.bif.gz": gzip.compress(BIF)}, {"a.bif.xz": lzma.compress(BIF)}],
        lambda f, n: mg.load(only(f, n)),
        use_graph,
        endings=(".bif.gz", ".bif.xz"),
    ),
    "dimmwitted": Reader(_dimmwitted, lambda f, n: mg.load(f), use_graph, endings=("graph.meta",)),
    "evid": Reader(
        lambda: [{"a.evid": text.encode()} for text in SETS],
        lambda f, n: uai.read_evidence(only(f, n)),
        repr,
    ),
    "MAR": Reader(
        lambda: [{"a.MAR": MARGINALS.encode()}],
        lambda f, n: uai.read_marginals(only(f, n)),
        repr,
    ),
    "PR": Reader(
        lambda: [{"a.PR": b"PR\n-2.5\n"}],
        lambda f, n: uai.read_partition(only(f, n)),
        use_number,
    ),
    "run": Reader(_runs, lambda f, n: mg.load(only(f, n)), use_run, "plain"),
    "checkpoint": Reader(_checkpoints, look_and_resume, use_both, "sealed"),
}

covered = {ending for reader in READERS.values() for ending in reader.endings}
assert covered == set(FORMATS), f"formats that are not fuzzed: {set(FORMATS) - covered}"
