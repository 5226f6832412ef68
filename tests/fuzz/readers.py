"""All readers of files: valid files, and how each is read and used."""

import gzip
import json
import lzma
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import minigibbs as mg
from minigibbs.formats import FORMATS, uai
from minigibbs.running.load import load_run
from tests.formats import files as small_files
from tests.harness import sample
from tests.learning import models
from tests.paths import LAWN
from tests.zoo import IMPLICIT, ZOO

Files = dict[str, bytes]  # by name: a single file, or a folder's files

# Goals, summaries and sampled answers need it; without it the other files are still read.


class Reader(NamedTuple):
    """One way to read files."""

    valid: Callable[[], list[Files]]  # files that it reads
    read: Callable[[Path, Files], Any]  # given their folder
    use: Callable[[Any], Any]  # uses the result
    archive: str | None = None  # "plain", "sealed" or "json": our formats
    endings: tuple[str, ...] = ()  # of `FORMATS`
    counted: bool = True  # whether campaigns by count try it; if not, campaigns by time do


def only(folder, files):
    return folder / next(iter(files))


def use_graph(graph):
    """Check that energies are numbers or -inf, and that the graph can be described and packed."""
    start = np.where(graph.evidence < 0, 0, graph.evidence)
    assert graph.log_potential(start) < np.inf, "an energy that is no number"
    graph.describe()
    repr(graph)
    assert graph.packed is not None
    for name, values in graph.parameters.items():
        assert values.dtype == np.float64, f"{name}: numbers that are none"


def use_number(found):
    assert np.isfinite(found), "a number that is not finite"


def check_run(run):
    """Check that counts are not negative."""
    assert (run.clock >= 0).all(), "a negative clock"
    assert (run.visits >= 0).all(), "negative visits"
    assert run.counts is None or (run.counts >= 0).all(), "negative counts"
    repr(run)


def use_run(run):
    """Compute marginals of a run that was read, and means of its observables."""
    check_run(run)
    if run.counts is not None:
        assert run.marginals.dtype == np.float64, "marginals that are no numbers"
    for name in run.observables:
        assert run.observables[name].mean is not None


def use_summary(run):
    """Summarize a run that was read, diagnostics included."""
    use_run(run)
    str(run.summary())


def use_answer(answer):
    assert not (answer.shares.given < 0).any(), "a negative probability"
    str(answer)
    repr(answer)
    answer.to_dict()


def use_fit(fit):
    str(fit)
    fit.to_dict()
    assert not fit.error < 0, "a negative error"


def use_framed(model):
    use_graph(model.graph)


def in_folder(write):
    """Return the files that a function writes to a folder."""
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
        labels={"sky": ["blue", "gray", "black"], 2: [10, 20]},
    ).condition({"sky": "gray"})
    pruned = mg.read(LAWN.parent / "sprinkler.bif")
    learned = models.mixed(names=["a", "b", "c", "d"], evidence=[-1, -1, 2, -1])
    graphs = [*ZOO.values(), *IMPLICIT.values(), named, pruned, learned]
    return [in_folder(lambda folder, g=g: mg.write(g, folder / "model.mg")) for g in graphs]


EVERYTHING = ("marginals", "draws", "energy")


def _runs():
    several = []
    for name, record in (("potts", EVERYTHING), ("evidence", "marginals"), ("mixed", "draws")):
        reference = np.full((len(ZOO[name]), ZOO[name].sizes.max()), 0.5)
        options = {"reference": reference} if "marginals" in record else {}
        run = sample(
            ZOO[name],
            updates=60,
            thin=3,
            record=record,
            seed=1,
            chains=2,
            progress=False,
            **options,
        )
        several.append(in_folder(lambda folder, run=run: run.save(folder / "a.run")))
    options = {"sweeps": 12, "seed": 1, "chains": 2, "progress": False}
    ladder = mg.sample(ZOO["potts"], mg.Tempering(levels=(0.0, 0.5, 1.0)), **options)
    colors = mg.sample(ZOO["ising"], mg.Gibbs(), scan="chromatic", observe=OBSERVED, **options)
    for run in (ladder, colors):
        several.append(in_folder(lambda folder, run=run: run.save(folder / "a.run")))
    return several


OBSERVED = {"m": "magnetization", "distribution": mg.observables.Histogram(bins=4)}


def _checkpoints():
    """Build runs of every kind that a checkpoint supports."""
    options = {"seed": 1, "chains": 2, "progress": False, "record": EVERYTHING}

    def goal(folder):
        goals = {"rhat": 1.0001, "ess": None, "max_time": 0}
        mg.sample_until(ZOO["potts"], checkpoint=folder, **goals, **options)

    def plain(folder):
        fixed = {"updates": 60, "thin": 3, "scan": "shuffled"}
        sample(ZOO["evidence"], checkpoint=folder, **fixed, **options)
        mg.resume(folder, updates=30, progress=False)

    def ladder(folder):
        sampler = mg.Tempering(levels=(0.0, 0.5, 1.0))
        mg.sample(ZOO["potts"], sampler, sweeps=12, checkpoint=folder, **options)

    def colors(folder):
        asked = {"scan": "chromatic", "observe": OBSERVED}
        mg.sample(ZOO["ising"], mg.Gibbs(), sweeps=12, checkpoint=folder, **asked, **options)

    def implicit(folder):
        mg.sample(IMPLICIT["points"], sweeps=12, checkpoint=folder, **options)

    kinds = [plain, ladder, colors, implicit, goal]
    return [in_folder(kind) for kind in kinds]


LIMIT = 0.02  # seconds to resume a changed checkpoint; a valid one may need longer


def resume(folder, files):
    """Continue a run whose remaining length was reduced."""
    return mg.resume(folder, sweeps=1, max_time=LIMIT, threads=1, progress=False)


def _answers():
    """Build an exact answer, with clamped variables, and a sampled one."""
    options = {"exact": False, "standard_error": 0.2, "seed": 1, "progress": False}
    kinds = [
        mg.infer(ZOO["evidence"], progress=False),
        mg.infer(ZOO["potts"], 1.0, **options),
    ]
    return [in_folder(lambda folder, one=one: one.save(folder / "a.answer")) for one in kinds]


def _fits():
    graph = models.mixed()
    rows = models.some_rows(graph, 20)
    asked = ({"method": "exact"}, {"steps": 20, "chains": 4, "seed": 1, "held_out": 0.5})
    fits = [mg.learn(graph, rows, l2=0.1, progress=False, **options) for options in asked]
    return [in_folder(lambda folder, fit=fit: fit.save(folder / "a.fit")) for fit in fits]


def _learnings():
    """Build chains: single, vectorized, with a sampler; and rows with missing values."""
    graph = models.mixed()
    pairs = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.1, name="J")])
    seen, some = models.some_rows(graph, 6), models.some_rows(graph, 6, missing=0.3)
    kinds = [
        (graph, some, {"chains": 4}),
        (graph, seen, {"chains": 4, "method": "cd", "optimizer": "sgd"}),
        (pairs, models.some_rows(pairs, 6), {"chains": 16, "held_out": 0.5}),
        (pairs, models.some_rows(pairs, 6), {"chains": 4, "sampler": mg.PoissonGibbs()}),
    ]
    options = {"steps": 2, "seed": 1, "l2": 0.1, "errors": False, "progress": False}

    def learn(kind, folder):
        own, rows, asked = kind
        mg.learn(own, rows, checkpoint=folder / "a.mgl", **asked, **options)

    return [in_folder(partial(learn, kind)) for kind in kinds]


def resume_learning(folder, files):
    options = {"steps": 1, "max_time": 0.02, "threads": 1, "progress": False}
    return mg.resume_learning(folder / "a.mgl", **options)


def _frames():
    """Build frames of a few rows, with everything that a rule can have."""
    cells = {
        "name": ["ann", "ann", "bob", "bob", "cy"],
        "value": ["red", "blue", "red", "blue", "red"],
        "seen": [False, False, True, False, False],
    }
    likes = {"who": ["ann", "bob"], "team": ["red", "blue"], "why": ["city", 3], "by": [1.0, 0.5]}
    rules = [
        {
            "frame": likes,
            "variables": ["who"],
            "values": ["team"],
            "name": "likes",
            "weight": "why",
            "scale": "by",
            "start": 0.5,
        },
        {"frame": {"a": ["ann"], "b": ["bob"]}, "variables": ["a", "b"], "same": True},
    ]
    coins = {"name": ["a", "b", "c"]}
    heads = [{"frame": {"coin": ["a", "b"]}, "variables": ["coin"], "start": 0.3, "fixed": True}]
    kinds = [(cells, rules, {"observed": "seen"}), (coins, heads, {"value": None})]
    keys = ("variables", "rules", "options")
    return [{"a.json": json.dumps(dict(zip(keys, kind, strict=True))).encode()} for kind in kinds]


def from_frames(folder, files):
    """Read columns as in a JSON file; refuse other files."""
    try:
        given = json.loads(only(folder, files).read_bytes())
        rules = [mg.Rule(**rule) for rule in given["rules"]]
        arguments = given["variables"], rules, dict(given["options"])
    except Exception as error:
        raise mg.FormatError(f"no frames: {error}") from error
    if set(arguments[2]) - {"name", "value", "observed"}:
        raise mg.FormatError("no options")
    return mg.from_frames(*arguments[:2], **arguments[2])


def _dimmwitted():
    def write(folder):
        boolean, three = small_files.BOOLEAN, small_files.THREE
        factors = [
            (f, [(0, 1), (1, 0), (2, 1)], f % 2, 0.5) for f in small_files.FUNCTIONS if f != 4
        ]
        variables = [boolean, (1, 1, 0, 2), three]
        small_files.written(folder, variables, factors, [1.4, -0.3], {2: [1, 5, 9]})

    return [in_folder(write)]


SETS = "2 0 1 2 0\n", "1 2 0 1 2 0\n"
MARGINALS = "MAR\n3 2 0.25 0.75 3 0.1 0.2 0.7 1 1.0\n"
BIF = LAWN.read_bytes()
UAI = small_files.SMALL.encode()


def _packings(ending, *texts):
    """Return the same files plain, and as .gz and .xz."""
    contents = [text.encode() for text in texts]
    plain = [{f"a{ending}": content} for content in contents]
    packed = [{f"a{ending}.gz": gzip.compress(content)} for content in contents]
    return plain + packed + [{f"a{ending}.xz": lzma.compress(content)} for content in contents]


def _text_format(ending, *texts, also=()):
    """Return a reader of a text format with an ending, plain and compressed, and other endings."""
    names = [ending, *also]
    return Reader(
        lambda: [files for name in names for files in _packings(name, *texts)],
        lambda f, n: mg.load(only(f, n)),
        use_graph,
        endings=tuple(f"{name}{packing}" for name in names for packing in ("", ".gz", ".xz")),
    )


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
    "xmlbif": _text_format(".xmlbif", small_files.XMLBIF, also=(".bifxml",)),
    "cnf": _text_format(".cnf", small_files.CNF),
    "wcnf": _text_format(".wcnf", small_files.WCNF, small_files.WCNF_OLD),
    "wcsp": _text_format(".wcsp", small_files.WCSP),
    "cfn": _text_format(".cfn", small_files.CFN),
    "qubo": _text_format(".qubo", small_files.QUBO),
    "gset": _text_format(".gset", small_files.GSET, also=(".rud", ".mc")),
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
    "answer": Reader(_answers, lambda f, n: mg.load(only(f, n)), use_answer, "plain"),
    "fit": Reader(_fits, lambda f, n: mg.load(only(f, n)), use_fit, "plain"),
    "learning": Reader(_learnings, resume_learning, use_fit, "sealed"),
    "checkpoint": Reader(_checkpoints, lambda f, n: mg.load(f), use_run, "sealed"),
    "resume": Reader(_checkpoints, resume, check_run, "sealed"),
    "frames": Reader(_frames, from_frames, use_framed, "json"),
    "summary": Reader(
        _runs, lambda f, n: load_run(only(f, n)), use_summary, "plain", counted=False
    ),
}

covered = {ending for reader in READERS.values() for ending in reader.endings}
assert covered == set(FORMATS), f"formats that are not fuzzed: {set(FORMATS) - covered}"
