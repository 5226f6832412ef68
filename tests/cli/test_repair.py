"""`minigibbs repair`: a CSV file in; the repaired table, its changes and a report out."""

import csv
import json

import pytest

import minigibbs as mg
from tests.cli.test_cli import command, one_line  # noqa: F401

ZIPS, CITIES = ["01", "02", "03"] * 20, ["Rome", "Oslo", "=Paris"] * 20
WRONG = 7  # a row with a typo
MISSING = 11  # a row without a city


@pytest.fixture
def shops(tmp_path):
    """Write a table with one typo and one empty cell."""
    cities = list(CITIES)
    cities[WRONG], cities[MISSING] = "Osxo", ""
    save(tmp_path / "shops.csv", zip=ZIPS, city=cities)
    return tmp_path / "shops.csv"


def save(path, **columns):
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def read(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_the_repaired_table_its_changes_and_a_report(command, shops, tmp_path):  # noqa: F811
    code, out, err = command(
        *["repair", "shops.csv", "--out", "clean.csv", "--changes", "changes.csv"],
        *["--report", "repair.html", "-q"],
    )
    assert (code, err) == (0, "")
    assert "changed     2 cells, 1 of them missing before" in out
    assert "saved: clean.csv" in out
    truth = [{"zip": z, "city": c} for z, c in zip(ZIPS, CITIES, strict=True)]
    assert read(tmp_path / "clean.csv") == truth
    found = {int(row["row"]): (row["before"], row["after"]) for row in read("changes.csv")}
    assert found == {WRONG: ("Osxo", "Oslo"), MISSING: ("", "=Paris")}
    assert "Osxo" in (tmp_path / "repair.html").read_text()


def test_json_agrees_with_the_library(command, shops):  # noqa: F811
    code, out, _ = command("repair", "shops.csv", "--json", "-q")
    assert code == 0
    got = json.loads(out)
    cities = [row["city"] for row in read(shops)]
    assert got == mg.repair({"zip": ZIPS, "city": cities}, progress=False).to_dict()
    assert {change["row"] for change in got["changes"]} == {WRONG, MISSING}


def test_the_table_on_stdout(command, shops):  # noqa: F811
    code, out, _ = command("repair", "shops.csv", "--out", "-", "-q")
    lines = out.splitlines()
    assert (code, lines[0], lines[1 + WRONG], len(lines)) == (0, "zip,city", "02,Oslo", 61)
    _, out, _ = command("repair", "shops.csv", "--changes", "-", "-q")
    assert [line.split(",")[:4] for line in out.splitlines()[1:]] == [
        [str(WRONG), "city", "Osxo", "Oslo"],
        [str(MISSING), "city", "", "=Paris"],
    ]


def test_options_reach_the_library(command, tmp_path):  # noqa: F811
    """A rule fills the missing city by its zip code; without it, only frequencies count."""
    cities = list(CITIES)
    cities[MISSING] = "NA"
    save(tmp_path / "shops.csv", zip=ZIPS, city=cities)
    (tmp_path / "rules.txt").write_text("zip -> city\n")
    asked = ["repair", "shops.csv", "--no-automatic", "--json", "-q"]
    filled = [*asked, "--missing", "NA"]

    def found(*arguments):
        changes = json.loads(command(*arguments)[1])["changes"]
        return [(one["row"], one["before"], one["after"]) for one in changes]

    assert found(*filled, "--rules", "rules.txt") == [(MISSING, None, "=Paris")]
    assert found(*filled) in ([(MISSING, None, "Rome")], [(MISSING, None, "Oslo")])
    assert found(*filled, "--rules", "rules.txt", "--column", "zip") == []
    assert found(*asked) == []


def test_labels_are_true_values(command, shops, tmp_path):  # noqa: F811
    save(tmp_path / "labels.csv", row=[4], column=["city"], value=["Bergen"])
    _, out, _ = command("repair", "shops.csv", "--labels", "labels.csv", "--json", "-q")
    got = json.loads(out)
    assert got["labels"] == 1
    assert {
        "row": 4,
        "column": "city",
        "before": "Oslo",
        "after": "Bergen",
        "probability": 1.0,
    } in (got["changes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop.csv"], "did you mean shops.csv?"),
        (["shops.csv", "--rules", "none.txt"], "none.txt: expected a text file of rules"),
        (["shops.csv", "--rules", "rules.txt"], "nope"),
        (["shops.csv", "--labels", "shops.csv"], "expected the columns row, column and value"),
        (["shops.csv", "--labels", "labels.csv"], "row must be the number of a row"),
        (["shops.csv", "--certainty", "2"], "certainty must be"),
        (["shops.csv", "--column", "town"], "there is no column 'town'"),
        (["shops.csv", "--out", "-", "--json"], "print on stdout: give one of them"),
        (["shops.csv", "--out", "no/clean.csv"], "there is no folder"),
        (["ragged.csv"], "row 1: expected 2 values, got 1"),
        (["empty.csv"], "expected a line with names"),
        (["twice.csv"], "two columns have the same name"),
        (["latin.csv"], "expected a CSV file in UTF-8"),
        (["semicolons.csv"], "expected values separated by commas"),
        (["shops.csv", "--out", "clean.parquet"], "tables are written as CSV"),
    ],
)
def test_bad_input_is_one_line(command, shops, tmp_path, arguments, message):  # noqa: F811
    (tmp_path / "rules.txt").write_text("zip -> nope\n")
    save(tmp_path / "labels.csv", row=["first"], column=["city"], value=["Rome"])
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "semicolons.csv").write_text("a;b\n1;2\n")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "latin.csv").write_bytes(b"a\n\xe9\n")
    code, out, err = command("repair", *arguments, "-q")
    assert (code, out) == (2, "")
    assert message in one_line(err)
