"""Distribution files: sdist and wheel have the right contents, and the wheel works alone.

Nothing is downloaded: the wheel is unpacked and precedes the sources on the path. `make package`
installs it in an empty environment, which needs a network.
"""

import email
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml

import minigibbs as mg
from tests.paths import ROOT

pytest.importorskip("hatchling", reason="building needs hatchling")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINKS = {"REPOSITORY_URL": "https://example.org/a/b", "SITE_URL": "https://a.example.org/b/"}


def test_the_lowest_versions_are_those_that_are_tested():
    """`make lowest` installs these versions, so that the stated minimums stay true."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    names = ("plot", "dimod", "networkx", "pandas")
    stated = [*project["dependencies"], *(one for name in names for one in extras[name])]
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    lowest = dict(one.split(">=") for one in stated)
    assert set(pinned) == set(lowest)
    for name, version in lowest.items():
        whole = version + ".0" * (2 - version.count("."))
        assert pinned[name] + ".0" * (2 - pinned[name].count(".")) == whole, name


def test_the_conda_recipe_states_the_same_requirements():
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text(encoding="utf-8"))
    stated = [one.replace(" ", "") for one in recipe["requirements"]["run"]]
    project = PROJECT["project"]
    assert stated == ["python" + project["requires-python"], *project["dependencies"]]
    assert recipe["context"]["version"] == mg.__version__
    command = " = ".join(*project["scripts"].items())
    assert recipe["build"]["python"]["entry_points"] == [command]


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda p: p.stem)
def test_actions_are_pinned_by_hash(path):
    """A tag can be moved to other code; a commit cannot."""
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    env = os.environ | LINKS
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


def test_wheel_is_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name for name in names if ".dist-info/" not in name}
    package = ROOT / "src" / "minigibbs"
    wanted = [path for path in package.rglob("*") if path.is_file()]
    wanted = [path for path in wanted if "__pycache__" not in path.parts]
    assert code == {path.relative_to(ROOT / "src").as_posix() for path in wanted}
    assert {name.split("/")[0] for name in code} == {"minigibbs"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_sdist_holds_what_the_tests_need(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in [
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "Makefile",
        "hatch_build.py",
        "mkdocs.yml",
        "tests/zoo.py",
    ]:
        assert name in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    data = email.message_from_bytes(archive.read(name))
    assert data["Version"] == mg.__version__
    assert data["License-Expression"] == "Apache-2.0"
    assert data["Description-Content-Type"] == "text/markdown"
    assert set(data.get_all("Provides-Extra")) == set(PROJECT["project"]["optional-dependencies"])
    links = dict(line.split(", ") for line in data.get_all("Project-URL"))
    assert links["Repository"] == LINKS["REPOSITORY_URL"]
    assert links["Issues"] == LINKS["REPOSITORY_URL"] + "/issues"
    assert links["Documentation"] == LINKS["SITE_URL"]


def test_links_that_nobody_knows_are_left_out():
    links = runpy.run_path(str(ROOT / "hatch_build.py"))["links"]
    assert list(links(None, "")) == ["Paper"]


@pytest.mark.parametrize("name", ["release", "docs"])
def test_workflows_say_where_they_run(name):
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    for variable in LINKS:
        assert f"  {variable}: " in text


def test_pages_of_the_index_can_show_it(built):
    pytest.importorskip("twine", reason="checked with twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout


def test_wheel_works_from_elsewhere(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import minigibbs as mg; from minigibbs.cli.main import app\n"
        "print(mg.__file__, mg.infer(mg.models.ising_lattice(4, beta=0.3)).method, sep='\\n')\n"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path
    )
    assert result.stdout.split("\n")[0].startswith(str(tmp_path))
    assert "exact" in result.stdout


def test_one_version_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {mg.__version__}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == mg.__version__


def test_every_extra_that_an_error_names_exists():
    """These lines work before the package is on an index, since pip finds minigibbs installed."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'pip install "minigibbs\[(\w+)\]"', text))
    assert named
    assert named <= set(PROJECT["project"]["optional-dependencies"])


def test_tested_pythons_are_those_that_are_promised():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"python: \[(.*)\]", workflow)
    promised = [
        line.rsplit(" ", 1)[1]
        for line in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", line)
    ]
    assert [version.strip('" ') for version in matrix.split(",")] == promised
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"
