"""The report: correct numbers, escaped names, one standalone page that browsers display well."""

import dataclasses
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.cli import main as cli
from minigibbs.results import report
from minigibbs.results.report import pictures
from minigibbs.results.report.beliefs import beliefs
from minigibbs.results.report.markup import Html, element
from minigibbs.system import files
from tests import naive
from tests.cli.test_cli import command, one_line  # noqa: F401
from tests.results.test_run_files import EVERYTHING, described, same_runs, sample, stuck
from tests.system.test_files import header, members, rewrite
from tests.zoo import ZOO

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium to show the page in")
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "'><svg onload=document.title='owned'>",
    "</title></style></script><script>document.title='owned'</script>",
    "&lt;b&gt; $title {title} %s",
)


class Page(HTMLParser):
    """Elements of a page with their text; checks that elements are closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        record = {"tag": tag, **dict(attributes), "text": ""}
        self.elements.append(record)
        if tag not in {"meta", "input", "img", "br"}:
            self.open.append(record)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for record in self.open:
            record["text"] += data

    def all(self, tag):
        return [record for record in self.elements if record["tag"] == tag]

    @property
    def text(self):
        return self.all("body")[0]["text"]


def rows(html):
    """Return the text of the cells in the table of all variables, one list per row."""
    body = html[html.index('id="all"') :]
    body = body[body.index("<tbody>") : body.index("</tbody>")]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body.split("</tr>")[:-1]]
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in cells]


def hostile():
    return mg.FactorGraph(
        [2, 3, 2, 2, 2],
        [mg.Potts([0, 1], [1, 2], 1.0)],
        names=HOSTILE,
        labels={1: HOSTILE[:3], 3: ["\u202eleft", "x" * 5000]},
    )


def show(path, *options):
    """Return the document after the browser has run it."""
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"]
        + [*options, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def without_policy(html, code=""):
    """Remove the content policy of a page, and append a script."""
    assert html.count("Content-Security-Policy") == 1
    html = html.replace("Content-Security-Policy", "nothing")
    return html.replace("</body>", f"<script>{code}</script></body>")


@pytest.mark.parametrize("record", [EVERYTHING, "marginals", "draws", "energy", ()], ids=str)
@pytest.mark.parametrize("updates", [0, 3, 400])
def test_every_run_has_a_page(tmp_path, record, updates):
    graph = described()
    run = sample(graph, updates=updates, record=record)
    run.report(tmp_path / "page.html", title="All & everything")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [one["text"] for one in page.all("h1")] == ["All & everything"]
    assert page.all("title")[0]["text"] == "All & everything"
    kept = {record} if isinstance(record, str) else set(record)
    for what in EVERYTHING:
        told = any(one["text"].startswith(f"{what}: ") for one in page.all("li"))
        assert told == (what not in kept)
    assert ("record=(" in page.text) == (kept != set(EVERYTHING))


def test_marginals_are_those_of_the_model():
    graph = ZOO["tables"]
    run = sample(graph, sweeps=20_000)
    truth = naive.marginals(graph)
    shown = rows(report.render(run))
    assert [row[0] for row in shown] == ["x0", "x1", "x2", "x3"]
    for row, exact in zip(shown, truth, strict=True):
        assert int(row[1]) == exact.argmax()
        # 80,000 draws: a standard error of about 0.3%, so 2% is six standard errors.
        assert float(row[2].rstrip("%")) == pytest.approx(100 * exact.max(), abs=2)


def test_bars_are_the_marginals():
    run = sample(described(), sweeps=500)
    html = report.render(run)
    for variable in ("sky", "wet"):
        for value, share in zip(*run.marginal(variable), strict=True):
            assert re.search(rf"<bdi>{value}</bdi></th><td>.*?width:{100 * share:.1f}%", html)


def test_marginals_from_draws_alone():
    run = sample(ZOO["mixed"], sweeps=300, record="draws")
    _, found = beliefs(run)
    for variable, size in enumerate(run.domains.sizes):
        expected = [(run.draws[:, :, variable] == value).mean() for value in range(size)]
        np.testing.assert_allclose(found.marginal(variable), expected)
        by_chain = [(run.draws[0, :, variable] == value).mean() for value in range(size)]
        np.testing.assert_allclose(found.by_chain(variable)[0], by_chain)
    assert "from the recorded draws" in report.render(run)


def test_what_is_said_of_each_variable():
    run = sample(ZOO["mixed"], sweeps=300)
    _, found = beliefs(run)
    for variable, size in enumerate(run.domains.sizes):
        row = run.marginals[variable, :size]
        chains = run.chain_marginals[:, variable, :size]
        entropy = -sum(p * np.log(p) for p in row if p > 0)
        assert found.uncertainty[variable] == pytest.approx(
            entropy / np.log(size) if size > 1 else 0
        )
        assert found.marginals.likeliest[variable] == row.argmax()
        assert found.marginals.top[variable] == pytest.approx(row.max())
        assert found.marginals.spread[variable] == pytest.approx(np.ptp(chains, axis=0).max())


def test_least_converged_agree_with_arviz():
    from arviz_stats.base import array_stats

    run = sample(ZOO["potts"], sweeps=150, scan="random")
    worst = []
    for variable in range(4):
        series = [(run.draws[:, :, variable] == value).astype(float) for value in range(3)]
        rhat = max(array_stats.rhat(one, chain_axis=0, draw_axis=1) for one in series)
        ess = min(array_stats.ess(one, chain_axis=0, draw_axis=1) for one in series)
        worst.append((rhat, variable, ess))
    worst.sort(reverse=True)
    judged = run.judged
    assert [one.variable for one in judged] == [variable for _, variable, _ in worst]
    np.testing.assert_allclose([one.rhat for one in judged], [rhat for rhat, _, _ in worst])
    np.testing.assert_allclose([one.ess for one in judged], [ess for _, _, ess in worst])
    text = Page(report.render(run)).text
    assert f"x{worst[0][1]}" in text
    assert f"{worst[0][0]:.3f}" in text


def findings(run):
    page = Page(report.render(run))
    boxes = [one for one in page.all("section") if "finding" in one["class"]]
    return [(one["class"].split()[1], one["text"]) for one in boxes]


def test_stuck_chains_are_told_first_and_plainly():
    for record in (EVERYTHING, ("marginals",), ("draws",)):
        (first, still), (level, text) = findings(stuck(record=record))
        assert first == level == "bad"
        assert "Nothing moved" in still
        assert "disagree" in text
        assert "do not use" in text
        assert re.search(r"variable [abc]\b", text)
    page = Page(report.render(stuck()))
    assert [one["tag"] for one in page.elements].index("section") < page.elements.index(
        page.all("dl")[0]
    )


def test_a_good_run_is_said_to_be_good():
    # R-hat stays within about 0.001 of 1 over seeds, see test_record.py.
    weak = mg.FactorGraph([2] * 4, [mg.Ising([0, 1, 2], [1, 2, 3], 0.2)])
    ((level, text),) = findings(sample(weak, sweeps=4000))
    assert level == "good"
    assert "No sign of trouble" in text
    assert "depend on each other weakly" in text


def test_strongly_coupled_chains_that_agree_are_not_said_to_be_good():
    """Chains of a strongly coupled model can agree by missing the same states."""
    graph = ZOO["potts"]
    assert graph.influence > 1
    ((level, text),) = findings(sample(graph, sweeps=4000))
    assert level == "fair"
    assert "no proof" in text
    ((level, text),) = findings(sample(graph, sweeps=4000, sampler=mg.Tempering()))
    assert level == "good"


def test_runs_that_tell_little_are_not_said_to_be_good():
    run = sample(ZOO["potts"], sweeps=4000)
    cut = dataclasses.replace(run, info=dataclasses.replace(run.info, interrupted=True))
    assert [level for level, _ in findings(cut)] == ["warning"]
    assert "interrupted" in findings(cut)[0][1]
    for options in (
        {"sweeps": 4000, "chains": 1},
        {"sweeps": 4000, "record": ()},
        {"sweeps": 3, "record": "marginals"},
        {"sweeps": 3, "record": "draws"},
        {"sweeps": 3, "record": "energy"},
        {"sweeps": 2},
        {"sweeps": 0},
    ):
        assert findings(sample(ZOO["potts"], **options))[0][0] == "unknown", options
    assert findings(sample(ZOO["potts"], sweeps=40))[0][0] == "warning"  # 160 draws are too few
    never = mg.FactorGraph([2, 2], [mg.Unary([0, 1], [0.0, -99.0])])
    level, text = findings(sample(never, sweeps=50, start=[0, 0]))[0]
    assert level == "bad"
    assert "Nothing moved" in text


def test_where_nothing_can_vary_all_is_well():
    everything = ZOO["potts"].condition({0: 0, 1: 0, 2: 0, 3: 0})
    for graph in (everything, mg.FactorGraph([1, 1], [])):
        for chains in (1, 4):
            ((level, text),) = findings(sample(graph, sweeps=50, chains=chains))
            assert level == "good"
            assert "Nothing to sample" in text
    assert findings(sample(everything, sweeps=0))[0][0] == "unknown"


def test_the_model_is_described():
    graph = ZOO["mixed"].condition({1: 1})
    run = sample(graph, sweeps=10)
    assert run.model == graph.describe()
    kinds = dict.fromkeys(run.model["kinds"], 0)
    for group in graph.factors:
        kinds[group.kind] += len(group)
    assert run.model["kinds"] == kinds
    assert run.model["clamped"] == 1
    assert run.model["max_degree"] == graph.stats.max_degree
    text = Page(report.render(run)).text
    assert "clamped by evidence1" in text
    assert f"(Ψ){graph.stats.total_energy:,.4g}" in text


def test_models_that_take_long_to_count_are_not_counted(tmp_path, monkeypatch):
    patterns = np.sign(np.random.default_rng(0).normal(size=(40, 2)))
    options = {"sweeps": 20, "seed": 1, "progress": False}
    counted = mg.sample(mg.FactorGraph([2] * 40, [mg.LowRank(patterns / 6)]), **options)
    assert counted.model["max_degree"] <= 39
    monkeypatch.setattr("minigibbs.graph.stats._QUICK", 1000)  # less than 40 * 40
    graph = mg.FactorGraph([2] * 40, [mg.LowRank(patterns / 6)])
    run = mg.sample(graph, **options)
    assert "stats" not in vars(graph)
    known = {key: value for key, value in counted.model.items() if key != "influence"}
    assert run.model == {**known, **dict.fromkeys(vars(graph.stats))}
    run.save(tmp_path / "run")
    assert mg.load(tmp_path / "run").model == run.model
    assert "(Δ)-" in Page(report.render(run)).text


def test_old_run_files_still_load_and_report(tmp_path):
    run = sample(ZOO["potts"], updates=40)
    run.save(tmp_path / "run")
    same_runs(run, mg.load(tmp_path / "run"))
    assert mg.load(tmp_path / "run").model == run.model
    old = json.loads(members(tmp_path / "run")["header.json"])
    del old["model"]
    rewrite(tmp_path / "run", {"header.json": json.dumps(old).encode()})
    loaded = mg.load(tmp_path / "run")
    same_runs(run, loaded)
    assert loaded.model is None
    assert "earlier version" in report.render(loaded)


@pytest.mark.parametrize(
    "model",
    [{}, [1], "x", {"kinds": 3}, {"clamped": "<b>"}, {"kinds": {"potts": -1}}, {"shape": "4"}],
    ids=str,
)
def test_damaged_models_are_refused(tmp_path, model):
    run = sample(ZOO["potts"], updates=40)
    run.save(tmp_path / "run")
    if isinstance(model, dict) and model:
        model = {**run.model, **model}
    rewrite(tmp_path / "run", {"header.json": header(tmp_path / "run", model=model)})
    with pytest.raises(mg.FormatError):
        mg.load(tmp_path / "run")


def test_a_hundred_thousand_variables_fit_on_a_small_page(tmp_path):
    names = [f"{'<&' * 40}{v}" for v in range(100_000)]
    graph = mg.FactorGraph(
        np.full(100_000, 2), [mg.Unary(np.arange(100_000), [0.0, 1.0])], names=names
    )
    run = sample(graph, sweeps=5, chains=2)
    run.report(tmp_path / "page.html", shape=(250, 400))
    assert (tmp_path / "page.html").stat().st_size < 1_000_000
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown = len(rows(html))
    assert f"{100_000 - shown:,} variables are left out" in Page(html).text


def test_large_domains_and_many_chains():
    graph = mg.FactorGraph(
        [1000, mg.Grid(0.0, 1.0, 200), 3], [mg.Potts([0], [2], 1.0)], names=list("abc")
    )
    run = sample(graph, sweeps=50, chains=11)
    html = report.render(run)
    text = Page(html).text
    assert "993 others" in text
    assert "3 are not" in text  # chains that are not drawn
    assert "standard deviation" in text


def test_grids_are_drawn():
    grid = mg.Grid(-1.0, 1.0, 30)
    graph = mg.FactorGraph([grid] * 3, [mg.Unary([0], [-5.0 * grid.values**2])])
    page = Page(report.render(sample(graph, sweeps=100)))
    (image,) = page.all("img")
    assert "3 variables over 30 points from -1 to 1" in image["alt"]


@pytest.mark.parametrize(
    ("states", "what"), [(2, "probability"), (4, "most probable"), (12, "mean")]
)
def test_lattices_are_drawn(states, what):
    run = sample(mg.models.potts_lattice(side=4, states=states, beta=0.3), sweeps=50)
    images = Page(report.render(run, shape=(4, 4))).all("img")
    assert len(images) == 5  # one of all chains, and one per chain
    assert what in images[0]["alt"]
    assert not Page(report.render(run)).all("img")
    with pytest.raises(mg.SampleError, match="rows and columns of 16"):
        report.render(run, shape=(4, 5))


def test_kernels_know_their_lattice():
    kernel = mg.Kernel((3, 4), lambda r, c: np.exp(-(r**2) - c**2), kind="ising")
    run = mg.sample(mg.FactorGraph([2] * 12, [kernel]), sweeps=50, seed=1, progress=False)
    page = Page(report.render(run))
    assert len(page.all("img")) == 5
    assert any("Energy of 4 chains" in one["aria-label"] for one in page.all("svg"))
    assert not any(one["text"].startswith("energy:") for one in page.all("li"))


def test_pictures_hold_what_they_should():
    pytest.importorskip("matplotlib")
    import io

    from matplotlib.image import imread

    levels = np.arange(12, dtype=np.uint8).reshape(3, 4) % 5
    palette = np.array([[10 * k, 20 * k, 255 - k] for k in range(5)], dtype=np.uint8)
    got = imread(io.BytesIO(pictures._png(levels, palette)), format="png")
    np.testing.assert_array_equal(np.rint(255 * got[..., :3]), palette[levels])


def test_a_long_line_keeps_its_extremes():
    row = np.random.default_rng(0).normal(size=20_000)
    kept = pictures._kept_places(row)
    assert len(kept) <= 500
    assert (np.diff(kept) > 0).all()
    assert (row[kept].min(), row[kept].max()) == (row.min(), row.max())


def test_a_constant_trace_is_drawn():
    graph = mg.FactorGraph([3, 3], [mg.Unary([0], [[0.0, 0.0, 0.0]])])
    assert 'class="line c3"' in report.render(sample(graph, sweeps=20))


def test_nothing_is_fetched_and_little_can_run():
    run = sample(hostile(), sweeps=100, reference=naive.marginals(hostile()))
    html = report.render(run, title=HOSTILE[3])
    assert not re.search(r"https?:", html)
    page = Page(html)
    assert len(page.all("script")) == 1
    for one in page.elements:
        assert "href" not in one
        assert not any(name.startswith("on") for name in one)
        assert one.get("src", "data:image/png").startswith("data:image/png")
    assert "url(" not in page.all("style")[0]["text"]
    assert "@import" not in page.all("style")[0]["text"]
    (policy,) = [m["content"] for m in page.all("meta") if "content" in m and "src" in m["content"]]
    assert policy.startswith("default-src 'none'")


def test_every_picture_has_words_and_every_table_headers():
    page = Page(
        report.render(sample(described(), sweeps=100, reference=naive.marginals(described())))
    )
    for one in page.all("img"):
        assert one["alt"]
    for one in page.all("svg"):
        assert one["role"] == "img"
        assert one["aria-label"]
    assert all(one["scope"] in ("row", "col") for one in page.all("th"))
    levels = [int(one["tag"][1]) for one in page.elements if re.fullmatch(r"h\d", one["tag"])]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
    assert page.all("html")[0]["lang"] == "en"


def test_markup_escapes_what_is_not_markup():
    assert element("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'
    assert element("input", hidden=True, value=None) == "<input hidden>"


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    run = sample(ZOO["potts"], updates=40)
    run.report(tmp_path / "page.html")
    before = (tmp_path / "page.html").read_bytes()
    monkeypatch.setattr(files.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        run.report(tmp_path / "page.html", title="another")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_bytes() == before
    with pytest.raises(mg.SampleError, match="no folder"):
        run.report(tmp_path / "nowhere" / "page.html")


def test_names_that_no_file_can_hold(tmp_path):
    graph = mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])], names=["lone \ud800 surrogate"])
    sample(graph, updates=10).report(tmp_path / "page.html")
    assert r"lone \ud800 surrogate" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_command(command, tmp_path):  # noqa: F811
    run = sample(mg.models.ising_lattice(side=4, beta=0.3), sweeps=20)
    run.save(tmp_path / "run.mgr")
    assert command("report", "run.mgr", "-o", "p.html") == (0, "report: p.html\n", "")
    assert "<h1>run.mgr</h1>" in (tmp_path / "p.html").read_text(encoding="utf-8")
    code, out, _ = command("report", "run.mgr", "--shape", "4x4", "--title", "T", "--json")
    assert (code, json.loads(out)) == (0, {"report": "report.html"})
    assert "<img" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_command_refuses_kindly(command, tmp_path):  # noqa: F811
    code, out, err = command("report", "nope.mgr")
    assert (code, out) == (2, "")
    assert "no such run: nope.mgr" in one_line(err)
    (tmp_path / "text").write_text("hello")
    code, _, err = command("report", "text")
    assert code == 2
    assert "not a minigibbs file" in one_line(err)
    mg.write(ZOO["potts"], tmp_path / "model.mg")
    code, _, err = command("report", "model.mg")
    assert code == 2
    assert "model.mg is neither a saved run nor a checkpoint" in one_line(err)
    sample(ZOO["potts"], updates=10).save(tmp_path / "run")
    for wrong, words in (("4", "rows and columns"), ("a x b", "ROWSxCOLUMNS")):
        code, _, err = command("report", "run", "--shape", wrong)
        assert code == 2
        assert words in one_line(err)
    code, _, err = command("report", "run", "-o", "nowhere/page.html")
    assert code == 2
    assert "no folder" in one_line(err)
    assert not (tmp_path / "report.html").exists()
    assert cli.app is not None


@browser
@pytest.mark.parametrize("policy", [True, False])
def test_hostile_names_are_inert_in_a_browser(tmp_path, policy):
    path = tmp_path / "page.html"
    sample(hostile(), sweeps=100).report(path, title="Fine")
    if not policy:  # escaping alone must suffice
        path.write_text(without_policy(path.read_text(encoding="utf-8")), encoding="utf-8")
    seen = show(path)
    assert "<title>Fine</title>" in seen
    assert seen.count("<script") == (1 if policy else 2)
    assert "<bdi>&lt;script&gt;document.title='owned'&lt;/script&gt;</bdi>" in seen


@browser
def test_the_browser_would_have_been_fooled(tmp_path):
    """Guard of the test above: the same text without escaping does change the page."""
    path = tmp_path / "page.html"
    path.write_text(f"<title>Fine</title><p>{HOSTILE[0]}{HOSTILE[1]}")
    assert "<title>owned</title>" in show(path)


@browser
def test_the_table_is_searched_in_a_browser(tmp_path):
    path = tmp_path / "page.html"
    html = report.render(sample(mg.models.ising_lattice(side=6, beta=0.2), sweeps=50))
    search = (
        "field.value = 'X1'; field.dispatchEvent(new Event('input'));"
        "document.title = [...document.querySelectorAll('#all tbody tr:not([hidden])')].length;"
    )
    path.write_text(without_policy(html, search), encoding="utf-8")
    assert "<title>11</title>" in show(path)  # x1 and x10 to x19
    path.write_text(html, encoding="utf-8")
    assert re.search(r"<label>Find", show(path))  # the policy permits the search: it is visible


@browser
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_overflows(tmp_path, width):
    run = sample(hostile(), sweeps=200, reference=naive.marginals(hostile()))
    tell = "parent.postMessage(document.documentElement.scrollWidth + ' wide', '*')"
    (tmp_path / "page.html").write_text(without_policy(report.render(run), tell), encoding="utf-8")
    (tmp_path / "frame.html").write_text(
        "<script>onmessage = (e) => { document.title = e.data; }</script>"
        f'<iframe src="page.html" width="{width}" height="900" frameborder="0"></iframe>'
    )
    wide = re.search(r"<title>(\d+) wide</title>", show(tmp_path / "frame.html"))
    assert int(wide[1]) <= width


@browser
def test_it_follows_the_color_scheme(tmp_path):
    path = tmp_path / "page.html"
    code = "document.title = getComputedStyle(document.body).backgroundColor"
    html = without_policy(report.render(sample(ZOO["potts"], updates=40)), code)
    path.write_text(html, encoding="utf-8")
    light = re.search(r"<title>rgb\((\d+)", show(path))
    dark = re.search(r"<title>rgb\((\d+)", show(path, "--force-dark-mode"))
    assert int(light[1]) > 200
    assert int(dark[1]) < 60


# Tempered runs.


def tempered(levels=(0.0, 0.3, 0.6, 1.0)):
    sampler = mg.Tempering(levels=levels)
    return sample(ZOO["ising"], sampler=sampler, sweeps=400, chains=2, seed=1)


def test_the_ladder_has_a_section():
    run = tempered()
    page = Page(report.render(run))
    headings = [one["text"] for one in page.elements if one["tag"] == "h2"]
    assert headings.count("The ladder") == 1
    tiles = {one["text"] for one in page.elements if one["tag"] == "dd"}
    assert any(text.startswith(f"{run.ladder.round_trips:,}in 800 rounds") for text in tiles)
    assert any(text.startswith(f"{run.ladder.barrier:.2f}") for text in tiles)
    assert any(f"{run.ladder.log_z:.4f} +- {run.ladder.log_z_error:.4f}" in t for t in tiles)
    (picture,) = [
        one
        for one in page.elements
        if one["tag"] == "svg" and "exchanged" in one.get("aria-label", "")
    ]
    assert f"{max(run.ladder.swap_rates):.0%}" in picture["aria-label"]
    assert "The ladder" not in report.render(sample(ZOO["ising"], sweeps=50))


def test_columns_of_shares_are_as_high_as_they_say():
    html = pictures.shares(np.array([0.0, 0.25, 1.0]), "rates", ("a", "b", "c"))
    heights = [float(x) for x in re.findall(r'<rect[^>]* height="([\d.]+)"', html)]
    tops = [float(y) for y in re.findall(r'<rect[^>]* y="([\d.]+)"', html)]
    assert heights == [0.0, 75.0, 300.0]
    assert tops == [300.0, 225.0, 0.0]
    many = pictures.shares(np.full(500, 0.5), "rates", ("a", "b", "c"))
    assert all(float(width) > 0 for width in re.findall(r' width="([-\d.]+)"', many))


def test_the_ladder_of_a_sampled_answer_is_reported(tmp_path):
    graph = ZOO["ising"]
    answer = mg.infer(graph, "5s", exact=False, standard_error=0.05, seed=1, progress=False)
    answer.report(tmp_path / "page.html")
    assert "The ladder" in (tmp_path / "page.html").read_text(encoding="utf-8")
    mg.infer(graph).report(tmp_path / "page.html")
    assert "The ladder" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_summary_tells_of_the_ladder():
    run = tempered()
    rows = dict(run.summary().rows())
    rates = run.ladder.swap_rates
    assert rows["levels"].startswith(f"4, neighbors exchange {min(rates):.0%} to {max(rates):.0%}")
    assert rows["round trips"] == f"{run.ladder.round_trips:,} in 800 rounds"
    assert rows["barrier"].startswith(f"{run.ladder.barrier:.2f}")
    assert rows["log Z"] == f"{run.ladder.log_z:.4f} +- {run.ladder.log_z_error:.4f}"
    assert "log Z" in str(run.summary())
    saved = json.loads(json.dumps(run.summary().to_dict()))
    assert saved["ladder"]["log_z"] == run.ladder.log_z
    plain = sample(ZOO["ising"], sweeps=50).summary()
    assert plain.ladder is None
    assert "log Z" not in dict(plain.rows())


AGAIN = {
    "updates": (ZOO["potts"], {"updates": 40, "warmup": 3}),
    "sweeps": (ZOO["mixed"], {"sweeps": 7, "warmup": 2, "scan": "systematic"}),
    "chromatic": (ZOO["potts"], {"sweeps": 9, "warmup": 2, "scan": "chromatic"}),
    "default": (mg.models.ising_lattice(side=12, beta=0.3), {"sweeps": 5}),
    "evidence": (ZOO["potts"].condition({0: 1}), {"sweeps": 6, "scan": "chromatic"}),
    "swendsen-wang": (
        mg.models.ising_lattice(side=4, beta=0.3),
        {"sampler": "swendsen-wang", "sweeps": 6, "warmup": 1},
    ),
    "blocks": (ZOO["potts"], {"sampler": mg.BlockGibbs(blocks=[[0, 1]]), "sweeps": 6}),
    "tempering": (ZOO["potts"], {"sampler": mg.Tempering(mg.Gibbs(), levels=4), "sweeps": 6}),
    "estimator": (
        ZOO["potts"],
        {"sampler": mg.MinGibbs(estimator=mg.PoissonEstimator(batch=9.0)), "updates": 30},
    ),
    "measured": (
        mg.models.potts_rbf(side=4),
        {"sampler": mg.PoissonGibbs(stickiness="measured"), "updates": 30},
    ),
}


@pytest.mark.parametrize("name", AGAIN)
def test_the_shown_call_makes_the_run_again(name):
    graph, options = AGAIN[name]
    record = ("marginals", "draws", "energy")
    run = mg.sample(graph, chains=2, seed=3, record=record, progress=False, **options)
    shown = Page(report.render(run)).all("code")
    (call,) = [one["text"] for one in shown if one["text"].startswith("mg.sample(")]
    again = eval(call, {"mg": mg, "graph": graph})
    np.testing.assert_array_equal(again.draws, run.draws)
    np.testing.assert_array_equal(again.counts, run.counts)
    assert again.info.warmup == run.info.warmup
