"""Cases, each determined by a seed and a number, and their outcomes."""

import os
import random
import re
import shutil
import traceback
import warnings
from functools import cache
from pathlib import Path

import minigibbs as mg
from tests.fuzz import extremes, graphs, implicit
from tests.fuzz.mutations import adopt, spoil, spoil_archive, spoil_json
from tests.fuzz.readers import READERS

KEPT = Path(__file__).parent / "kept"  # files that once did harm: one folder per reader
SAMPLERS, IMPLICIT, EXTREMES = "samplers", "implicit", "extremes"
CHECKS = {  # targets that read no files
    SAMPLERS: graphs.check,
    IMPLICIT: implicit.check,
    EXTREMES: extremes.check,
}
TARGETS = [*READERS, *CHECKS]

READ, REFUSED = "read", "refused"  # the two allowed outcomes of readers
HARMLESS = (READ, *extremes.OUTCOMES)  # and the outcomes of more detailed checks
_ARCHIVES = (".mg", ".npz", ".run", ".answer", ".fit", ".mgl")
_SEALED = (".npz", ".mgl")


def run_case(target: str, seed: int, number: int, folder: Path) -> str:
    """Build a case and try it; return READ, REFUSED, or the failure."""
    if target in CHECKS:
        return outcome(lambda: CHECKS[target](generator(target, seed, number)))
    return try_files(target, mutant(target, seed, number), folder)


def generator(target: str, seed: int, number: int) -> random.Random:
    """Return the random generator of a case."""
    return random.Random(f"{target} {seed} {number}")


def mutant(target: str, seed: int, number: int) -> dict[str, bytes]:
    """Return the files of a case."""
    return spoiled(target, generator(target, seed, number))


def try_files(target: str, content: dict[str, bytes], folder: Path) -> str:
    """Write files to a folder, read them, and check the result."""
    place = str(folder)
    if not os.path.isdir(place):
        os.mkdir(place)
    for old in os.listdir(place):
        path = f"{place}/{old}"
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    for name, data in content.items():
        with open(f"{place}/{name}", "wb", buffering=0) as stream:
            stream.write(data)
    reader = READERS[target]
    return outcome(lambda: reader.use(reader.read(folder, content)))


def outcome(action) -> str:
    """Return READ, REFUSED, the message of a check, or the foreign error and its place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            said = action()
        except mg.MinigibbsError:
            return REFUSED
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}, {where.name}"
            return f"{type(error).__name__} in {place}: {' '.join(str(error).split())[:200]}"
    return said if isinstance(said, str) and said in HARMLESS else READ


@cache
def valid(target: str) -> list[dict[str, bytes]]:
    """Return valid files for a reader."""
    return READERS[target].valid()


def spoiled(target: str, rng: random.Random) -> dict[str, bytes]:
    """Return valid files, one of them changed."""
    archive = READERS[target].archive
    content = dict(rng.choice(valid(target)))
    name = rng.choice(list(content))
    sealed = archive == "sealed" and name.endswith(_SEALED)
    if archive == "json" and rng.random() < 0.9:
        content[name] = spoil_json(content[name], rng)
    elif archive is not None and name.endswith(_ARCHIVES) and rng.random() < 0.7:
        content[name] = spoil_archive(content[name], rng, sealed)
    else:
        content[name] = spoil(content[name], rng)
    if archive == "sealed" and name == "model.mg" and rng.random() < 0.7:
        content["run.npz"] = adopt(content["run.npz"], content["model.mg"])
    return content


def kind(what: str) -> str:
    """Return the kind of failure of a case, as the name of a folder."""
    return re.sub(r"[^\w-]+", "-", what.split(":")[0].replace(".py", ""))


def keep(target: str, folder: Path, what: str) -> Path:
    """Store the files of a harmful case for the tests."""
    place = KEPT / target / kind(what)
    if not place.exists():
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("lock"))
    return place
