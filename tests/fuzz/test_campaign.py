"""Campaigns by count: no case counts twice, all readers advance equally, no finding is lost."""

import json
import os
import sys
import time

import pytest

import minigibbs as mg
from tests.fuzz import campaign, cases, kills, shards
from tests.fuzz.readers import READERS
from tests.fuzz.seen import Seen

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


def run(out, *arguments):
    """Run a campaign and return its results."""
    assert campaign.main(["--kills", "0", "--cores", "2", "--out", str(out), *arguments]) in (0, 1)
    return json.loads((out / "results.json").read_text())["readers"]


def test_mutants_are_new_and_all_readers_have_as_many(tmp_path, capsys):
    found = run(tmp_path, "--cases", "300", "PR", "evid")
    for one in found.values():
        assert 300 <= one["cases"] <= 303
        assert one["read"] + one["refused"] == one["cases"] < one["made"]  # some are repeated
        assert one["foreign_errors"] == one["hangs"] == one["deaths"] == 0
    assert "| PR | 30" in capsys.readouterr().out
    assert not {path.name for path in tmp_path.iterdir()} - {
        "results.json", "results.md", "stderr.log"
    }  # fmt: skip
    numbers, seen, new = range(found["PR"]["made"]), set(), 0
    for number in numbers:
        content = cases.mutant("PR", 0, number)
        new += content not in cases.valid("PR") and str(content) not in seen
        seen.add(str(content))
    assert new == found["PR"]["cases"]


def test_fewer_of_some_and_sums_of_campaigns(tmp_path):
    for seed in ("1", "2"):
        one = run(
            tmp_path / seed, "--seed", seed, "--cases", "60", "--at-most", "MAR=20", "PR", "MAR"
        )
        assert 60 <= one["PR"]["cases"] <= 63
        assert 20 <= one["MAR"]["cases"] <= 23
    whole = campaign.add([tmp_path / "1", tmp_path / "2"])["readers"]
    assert 120 <= whole["PR"]["cases"] <= 126
    with pytest.raises(SystemExit, match="one seed"):
        campaign.add([tmp_path / "1", tmp_path / "1"])


def test_a_campaign_goes_on_behind_another(tmp_path):
    run(tmp_path / "1", "--cases", "200", "PR")
    found = run(tmp_path / "2", "--cases", "200", "--after", str(tmp_path / "1"), "PR")["PR"]
    whole = campaign.add([tmp_path / "1", tmp_path / "2"])["readers"]["PR"]
    assert whole["cases"] >= 400
    assert 0 < found["first"] < found["following"] == whole["following"]
    made = [cases.mutant("PR", 0, number) for number in range(found["following"])]
    assert len({str(one) for one in made if one not in cases.valid("PR")}) == whole["cases"]


def harmful(path):
    """Read a file, with a behavior that depends on its first byte."""
    first = path.read_bytes()[:1]
    if first == b"P":
        raise mg.FormatError("no")
    if first == b"R":
        raise ZeroDivisionError("harm")
    if first == b"2":
        os._exit(3)
    if first == b"-":
        time.sleep(1000)
    return 1.0


def test_errors_deaths_and_hangs_are_found_and_kept(tmp_path, monkeypatch):
    reader = READERS["PR"]._replace(read=lambda folder, files: harmful(folder / "a.PR"))
    with monkeypatch.context() as patched:
        patched.setattr(shards.Shards, "warm", lambda self, meanwhile: None)
        patched.setitem(READERS, "PR", reader)
        patched.setattr(shards, "PATIENCE", 0.5)
        found = run(tmp_path, "--cases", "80", "PR")["PR"]
    assert found["foreign_errors"] > 0
    assert found["deaths"] > 0
    assert found["hangs"] > 0
    assert found["cases"] >= 80
    lines = [json.loads(line) for line in (tmp_path / shards.FINDINGS).read_text().splitlines()]
    assert len(lines) == found["foreign_errors"] + found["deaths"] + found["hangs"]
    for target, seed, number, what, content in lines:
        assert (target, seed) == ("PR", 0)
        first = cases.mutant("PR", 0, number)["a.PR"][:1]
        expected = {b"R": "ZeroDivisionError in ", b"2": "died with 3", b"-": "hang"}[first]
        assert what.startswith(expected)
        assert content or expected.startswith("Zero")  # the first of a kind has its files
    monkeypatch.setattr(campaign, "KEPT", tmp_path / "kept")
    campaign.main_keep([str(tmp_path)])
    assert {path.name for path in (tmp_path / "kept" / "PR").iterdir()} >= {"hang", "died-with-3"}


def test_what_was_seen_is_seen_by_others():
    seen = Seen(100)
    assert seen.add({"a": b"1"})
    pid = os.fork()
    if pid == 0:
        os._exit(not (not seen.add({"a": b"1"}) and seen.add({"b": b"1"})))
    assert os.waitpid(pid, 0)[1] == 0
    assert not seen.add({"b": b"1"})
    assert seen.add({"a": b"", "1": b""})


@pytest.mark.parametrize(
    ("only", "kills_", "expected"),
    [
        (["GPU"], 60, dict.fromkeys(kills.CARD, 12)),
        (["GPU, tails"], 24, {"GPU, tails": 24}),
        (["learning, CD"], 50, {"learning, CD": 50}),
    ],
)
def test_runs_on_a_card_can_be_chosen(monkeypatch, only, kills_, expected):
    monkeypatch.setattr(kills, "card", lambda: "a card")
    killing, counts = kills.Killing(kills_, 60, 0, 1, only), {}
    for name, count in killing._left:
        counts[name] = counts.get(name, 0) + count
    assert counts == expected


def test_a_killed_run_that_says_nothing_is_a_failure(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    job = kills.Job("gibbs", 0, 1)
    while not job.poll():
        time.sleep(0.01)
    outcome = job.outcome()
    assert outcome["killed"] == 0
    assert not outcome["same"]
