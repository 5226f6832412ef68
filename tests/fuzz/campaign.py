"""Campaigns by count over many cores: `python -m tests.fuzz campaign --cores 16 --out DIR`.

Every reader gets the same number of mutants, and runs of every configuration are killed the same
number of times, in parallel. All readers advance at the same pace. Findings are written every few
seconds, so an interrupted campaign has results: `results.json`, `results.md`, and the harmful files
in `findings.jsonl` (`python -m tests.fuzz keep DIR` adds them to the tests). `python -m tests.fuzz
add DIR DIR ...` adds up campaigns with different seeds, and campaigns that continue another one
(`--after`).
"""

import argparse
import base64
import importlib.metadata
import itertools
import json
import operator
import os
import platform
import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.fuzz import kills
from tests.fuzz.cases import KEPT, kind
from tests.fuzz.readers import READERS
from tests.fuzz.shards import FINDINGS, Shards

_WRITE = 5.0  # seconds between two writes of the results
_SPARE = 5.0  # seconds reserved for the end
PACKAGES = ("numpy", "numba", "numba-cuda", "scipy")


def machine() -> dict:
    """Return the machine and the versions of a campaign."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not there"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "card": kills.card() or "none",
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def results(about: dict, shards: Shards, killing: kills.Killing, began: float) -> dict:
    """Return all results so far, as JSON."""
    readers = {
        name: {
            "cases": one.cases,
            "made": one.made,
            "first": one.first,
            "following": one.following,
            "exhausted": int(one.exhausted),
            "read": one.read,
            "refused": one.refused,
            "foreign_errors": len(one.wrong),
            "hangs": one.hangs,
            "deaths": one.deaths,
            "core_seconds": round(one.seconds, 1),
            "slowest_seconds": round(one.slowest, 3),
            "slowest_case": one.which,
            "wrong": one.wrong[:100],
        }
        for name, one in shards.readings.items()
    }
    return {
        **about,
        "seeds": [shards.seed],
        "seconds": round(time.monotonic() - began, 1),
        "readers": readers,
        "kills": killing.results(),
    }


def table(found: dict) -> str:
    """Format the results as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    seeds = ", ".join(map(str, found["seeds"]))
    lines = [
        "# Campaign",
        "",
        f"{found['date']}; {found['processor']}, {found['cores']} cores; card: {found['card']}.",
        f"{versions}. Seed {seeds}; {found['seconds']:,.0f} s.",
        "",
        "| reader | mutants | read | refused | foreign errors | hangs | deaths "
        "| made, repetitions included | core seconds | ms a mutant | slowest, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    columns = ("cases", "read", "refused", "foreign_errors", "hangs", "deaths", "made")
    for name, one in found["readers"].items():
        counts = " | ".join(f"{one[column]:,}" for column in columns)
        each = 1e3 * one["core_seconds"] / max(one["cases"], 1)
        lines.append(
            f"| {name} | {counts} | {one['core_seconds']:,.0f} | {each:.2f} "
            f"| {one['slowest_seconds']:.2f} |"
        )
    lines += ["", "| killed run | kills | runs | with progress | differences | failures |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    columns = ("kills", "runs", "progressed", "differences", "failures")
    for name, one in found["kills"].items():
        lines.append(f"| {name} | " + " | ".join(f"{one[column]:,}" for column in columns) + " |")
    total = [sum(one[column] for one in found["kills"].values()) for column in columns]
    lines.append("| all | " + " | ".join(f"{number:,}" for number in total) + " |")
    lines += ["", *_wrong(found)]
    return "\n".join(lines) + "\n"


def _wrong(found: dict) -> list[str]:
    lines = [f"* {name}, {text}" for name, one in found["readers"].items() for text in one["wrong"]]
    lines += [f"* {name}: {text}" for name, one in found["kills"].items() for text in one["wrong"]]
    return lines[:200] or ["Nothing went wrong."]


def write(out: Path, found: dict) -> None:
    """Write both files atomically."""
    for name, text in (("results.json", json.dumps(found, indent=1)), ("results.md", table(found))):
        temporary = out / f".{name}"
        temporary.write_text(text)
        temporary.replace(out / name)


def add(folders: list[Path]) -> dict:
    """Add up several campaigns, which must have different seeds."""
    parts = [json.loads((folder / "results.json").read_text()) for folder in folders]
    for a, b in itertools.combinations(parts, 2):
        if set(a["seeds"]) & set(b["seeds"]) and _overlap(a["readers"], b["readers"]):
            raise SystemExit("campaigns of one seed try the same cases, unless one has --after")
    seeds = sorted({seed for part in parts for seed in part["seeds"]})
    whole = {**parts[0], "seeds": seeds, "seconds": sum(part["seconds"] for part in parts)}
    for part_of in ("readers", "kills"):
        names = dict.fromkeys(name for part in parts for name in part[part_of])
        whole[part_of] = {
            name: _sum([part[part_of][name] for part in parts if name in part[part_of]])
            for name in names
        }
    return whole


def _overlap(a: dict, b: dict) -> bool:
    """Return whether two campaigns of one seed have common mutants."""
    return any(
        a[name]["first"] < b[name]["following"] and b[name]["first"] < a[name]["following"]
        for name in a.keys() & b.keys()
    )


_JOINED = {"first": min, "following": max, "slowest_seconds": max, "slowest_case": max}


def _sum(parts: list[dict]) -> dict:
    whole = dict(parts[0])
    for part in parts[1:]:
        for key, value in part.items():
            whole[key] = _JOINED.get(key, operator.add)(whole[key], value)
        if part.get("slowest_seconds") == whole.get("slowest_seconds"):
            whole["slowest_case"] = part.get("slowest_case")
    return whole


def run(options: argparse.Namespace) -> int:
    """Run a campaign; return 0 without failures."""
    began, out = time.monotonic(), options.out
    deadline = began + options.seconds - _SPARE
    out.mkdir(parents=True, exist_ok=True)
    about = machine()
    counted = [name for name, one in READERS.items() if one.counted]
    goals = dict.fromkeys(options.targets or counted, options.cases) if options.cases else {}
    goals |= {name: min(most, goals[name]) for name, most in options.at_most if name in goals}
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    scratch = Path(tempfile.mkdtemp(prefix="fuzz-", dir=base))
    before = _before(options.after)
    shards = Shards(goals, options.seed, out, scratch, max(before.values(), default=0))
    lanes = min(options.lanes or max(options.cores // 4, 1), options.cores)
    killing = kills.Killing(options.kills, options.card_kills, options.seed, lanes, options.only)
    try:
        shards.warm(killing.look)
        shards.remember(before, options.cores)
        last = time.monotonic()
        while time.monotonic() < deadline and not (shards.done and killing.done):
            killing.look()
            shards.look()
            shards.fill(max(options.cores - len(killing.live), 1 if killing.done else 0))
            if time.monotonic() - last > _WRITE:
                write(out, results(about, shards, killing, began))
                last = time.monotonic()
            time.sleep(0.02)
    finally:
        shards.cut()
        killing.cut()
        found = results(about, shards, killing, began)
        write(out, found)
        shutil.rmtree(scratch, ignore_errors=True)
    print(table(found))
    harm = sum(
        one["foreign_errors"] + one["hangs"] + one["deaths"] for one in found["readers"].values()
    )
    harm += sum(one["differences"] + one["failures"] for one in found["kills"].values())
    return 1 if harm else 0


def main(arguments: list[str]) -> int:
    """Run the command `campaign`."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz campaign", description=__doc__)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=540.0, help="of the whole")
    parser.add_argument("--cases", type=int, default=1_000_000, help="of each reader")
    parser.add_argument(
        "--at-most",
        type=_limit,
        action="append",
        default=[],
        help="fewer of one, such as resume=100000",
    )
    parser.add_argument("--kills", type=int, default=1000, help="of all configurations together")
    parser.add_argument("--card-kills", type=int, default=60, help="of them on a GPU, if any")
    parser.add_argument("--lanes", type=int, help="runs to be killed side by side")
    parser.add_argument(
        "--only", action="append", help="part of the names of configurations to be killed: GPU"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--after", type=Path, help="the folder of a campaign of this seed before")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("targets", nargs="*", help=f"readers, by default all of {list(READERS)}")
    return run(parser.parse_args(arguments))


def _before(folder: Path | None) -> dict[str, int]:
    """Return the number after the last mutant of the previous campaign, by reader."""
    if folder is None:
        return {}
    readers = json.loads((folder / "results.json").read_text())["readers"]
    return {name: one["following"] for name, one in readers.items()}


def _limit(text: str) -> tuple[str, int]:
    name, _, most = text.partition("=")
    return name, int(most)


def main_keep(arguments: list[str]) -> int:
    """Run the command `keep`."""
    for argument in arguments:
        for line in (Path(argument) / FINDINGS).read_text().splitlines():
            target, _, _, what, content = json.loads(line)
            place = KEPT / target / kind(what)
            if content and not place.exists():
                place.mkdir(parents=True)
                for name, data in content.items():
                    (place / name).write_bytes(base64.b64decode(data))
                print(place)
    return 0


def main_add(arguments: list[str]) -> int:
    """Run the command `add`."""
    print(table(add([Path(argument) for argument in arguments])))
    return 0
