"""Structures are learned from complete and incomplete tables, subject to rules."""

import itertools
import json
import pickle
import warnings

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.structure import hill_climbing
from minigibbs.structure.equivalence import class_distance, compelled
from minigibbs.structure.pooling import pooled
from minigibbs.structure.table import read_table
from tests.structure.models import draw, edges_of, hidden, network, planted


def learn(*args, **options):
    return mg.learn_structure(*args, **{"progress": False, "seed": 1, "threads": 1, **options})


def chain(rows=2000, columns=5, seed=1):
    i = np.arange(columns - 1)
    graph = mg.FactorGraph([2] * columns, [mg.Ising(i, i + 1, 0.6)])
    return mg.exact_draws(graph, rows, seed=seed)


def skeleton(structure):
    """Return the pairs of columns with an edge."""
    edge = edges_of(structure)
    return {tuple(sorted(pair)) for pair in np.argwhere(edge).tolist()}


@pytest.mark.quick
@pytest.mark.parametrize("method", ["tree", "network", "pairwise"])
def test_a_chain_is_found(method):
    # The weakest of 4 true pairs has a gain of about 300. One of 6 false pairs exceeds the BIC
    # penalty, chi-squared above log(2000) = 7.6, in less than 4% of all tables.
    found = learn(chain(), method)
    assert skeleton(found) == {(k, k + 1) for k in range(4)}
    answer = mg.infer(found.graph, progress=False)
    np.testing.assert_allclose(answer.marginals[:, 1], chain().mean(axis=0), atol=0.02)


def test_a_tree_of_likelihood_spans_all_columns():
    rows = np.random.default_rng(0).integers(0, 2, (200, 6))
    assert len(learn(rows, score="likelihood").edges) == 5
    assert len(learn(rows).edges) <= 2  # independent columns get an edge in 2% of all pairs


def test_networks_are_found_up_to_equivalence():
    tables, truth = network()
    found = learn(draw(tables, 20_000, 1), "network", restarts=5)
    assert class_distance(truth, edges_of(found)) == 0
    marked = {(edge.source, edge.target) for edge in found.edges if edge.compelled}
    assert marked == {(f"x{a}", f"x{b}") for a, b in np.argwhere(compelled(truth)).tolist()}
    parents, table = found.conditional("x2")
    order = [int(parent[1:]) for parent in parents]
    assert order == [0, 1]
    seen = draw(tables, 20_000, 1)
    common = np.bincount(3 * seen[:, 0] + seen[:, 1], minlength=9) / len(seen)
    error = np.abs(table - tables[2].table).max(axis=-1).ravel()
    # Five standard errors of a share among the rows with these parents, plus the bias of the prior.
    assert (error < 5 * 0.5 / np.sqrt(20_000 * common) + 1 / (9 * 20_000 * common)).all()


@pytest.mark.parametrize("score", ["bic", "bdeu"])
def test_climbing_ends_where_no_change_of_an_edge_is_better(score):
    tables, _ = network(seed=5)
    rows = draw(tables, 500, 2)
    found = learn(rows, "network", score=score, tabu=0)
    more = learn(rows, "network", score=score, tabu=30, restarts=3)
    assert more.score >= found.score - 1e-6
    assert all(edge.strength > 0 for edge in found.edges)


def test_rules_of_networks_hold():
    tables, _ = network()
    rows = draw(tables, 3000, 1)
    tiers = [[f"x{k}" for k in range(5, 10)], [f"x{k}" for k in range(5)]]
    found = learn(
        rows,
        "network",
        tiers=tiers,
        required=[("x9", "x0")],
        forbidden=[("x0", "x2"), ("x2", "x0")],
        max_parents=2,
    )
    edge = edges_of(found)
    assert not edge[:5, 5:].any()
    assert edge[9, 0]
    assert not edge[0, 2]
    assert not edge[2, 0]
    assert edge.sum(axis=0).max() <= 2
    np.testing.assert_allclose(mg.infer(found.graph, progress=False).log_z, 0.0, atol=1e-6)


def without_cycle(edge):
    power = edge.astype(int)
    for _ in range(len(edge)):
        power = power @ edge
    return not power.any()


def colliders(edge):
    """Pairs of parents that are not adjacent, with their child."""
    adjacent = edge | edge.T
    return {
        (a, b, child)
        for child in range(len(edge))
        for a, b in itertools.combinations(np.flatnonzero(edge[:, child]).tolist(), 2)
        if not adjacent[a, b]
    }


def test_directions_are_those_of_all_networks_of_the_class():
    """Random networks of five columns, some directions given, against enumeration."""
    rng = np.random.default_rng(0)
    fourth = np.zeros((5, 5), dtype=bool)  # Meek's fourth rule: 3 -> 2 directs 0 -> 1
    fourth[[0, 0, 0, 3, 2], [1, 2, 3, 2, 1]] = True
    cases = [(fourth, fourth & (np.arange(5) == 3)[:, None])]
    for _ in range(60):
        order = rng.permutation(5)
        edge = np.triu(rng.random((5, 5)) < rng.uniform(0.3, 1.0), 1)[np.ix_(order, order)]
        cases.append((edge, edge & (rng.random((5, 5)) < 0.3)))
    more = 0
    for edge, given in cases:
        pairs = np.argwhere(edge).tolist()
        common = edge.copy()
        for turned in itertools.product([False, True], repeat=len(pairs)):
            other = np.zeros_like(edge)
            for (a, b), turn in zip(pairs, turned, strict=True):
                other[(b, a) if turn else (a, b)] = True
            kept = not (given & ~other).any() and colliders(other) == colliders(edge)
            if kept and without_cycle(other):
                common &= other
        np.testing.assert_array_equal(compelled(edge, given), common)
        more += bool((compelled(edge, given) & ~compelled(edge) & ~given).any())
    assert more > 4  # directions that follow from the given ones


def test_rules_determine_directions():
    tables, _ = network()
    rows = draw(tables, 2000, 1)[:, [3, 2, 4]]  # a fork, whose directions data do not tell
    free = learn(rows, "network")
    assert len(free.edges) == 2
    assert not any(edge.compelled for edge in free.edges)
    ruled = learn(rows, "network", tiers=[["x0"], ["x1", "x2"]], bootstrap=5)
    told = {(edge.source, edge.target): (edge.compelled, edge.direction) for edge in ruled.edges}
    assert told == {("x0", "x1"): (True, 1.0), ("x1", "x2"): (True, 1.0)}
    assert "x0 -> x1" in str(ruled)


@pytest.mark.parametrize("method", ["tree", "pairwise"])
def test_rules_of_trees_and_pairwise_networks_hold(method):
    both = [("x0", "x1"), ("x1", "x0")]
    found = learn(chain(), method, forbidden=both, required=[("x4", "x0")])
    assert (0, 1) not in skeleton(found)
    assert (0, 4) in skeleton(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "forest"}, "method must be one of tree, pairwise, network"),
        ({"score": "aic"}, "must be 'bic' or 'likelihood'; got 'aic'"),
        ({"method": "network", "score": "ebic"}, "must be 'bic' or 'bdeu'"),
        ({"tiers": [["x0"]]}, 'tiers is for method="network"'),
        ({"max_parents": 2}, 'max_parents is for method="network"'),
        ({"method": "network", "max_parents": -1}, "must not be negative"),
        ({"method": "network", "tiers": [["x0"], ["x0"]]}, "'x0' is in two lists"),
        ({"method": "network", "tiers": [["y"]]}, "tiers: there is no column 'y'"),
        ({"required": [("x0", "y")]}, "required: there is no column 'y'"),
        ({"required": ["x0"]}, "must be a list of lists"),
        ({"required": [("x0", "x0")]}, "to itself"),
        ({"required": [("x0", "x1")], "forbidden": [("x0", "x1")]}, "is forbidden"),
        (
            {"method": "network", "required": [("x0", "x1"), ("x1", "x0")]},
            "must not form a cycle",
        ),
        (
            {"method": "network", "required": [("x0", "x1"), ("x2", "x1")], "max_parents": 1},
            "'x1' has more than max_parents=1",
        ),
        ({"equivalent_size": 0.0}, "equivalent_size must be positive"),
        ({"bootstrap": -1}, "bootstrap must not be negative"),
        ({"bootstrap": 10**6 + 1}, "bootstrap must be at most 1,000,000"),
        ({"pseudocount": -1.0}, "pseudocount must not be negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(mg.LearnError, match=message):
        learn(chain(50), **options)


@pytest.mark.parametrize("values", [2, 3])
def test_planted_pairwise_networks_are_found(values):
    rows, truth = planted(20, 2000, 3, 0.4, seed=values, values=values)
    found = learn(rows, "pairwise")
    # Couplings of 0.4 have gains of about 150 at a price of 10 per table parameter. A false pair
    # passes with probability below 1e-4, so one of about 160 passes in at most 2% of all tables.
    assert skeleton(found) == truth
    fit = mg.learn(found.graph, found.encode(rows), "pseudo", progress=False, errors=False)
    assert fit.steps <= 100  # the graph's parameters can be learned further


@pytest.mark.parametrize("method", ["tree", "network", "pairwise"])
def test_rows_with_missing_cells_are_used(method):
    # With 30% of the cells missing, one row in six has all 5 columns.
    rows = hidden(chain(3000), 0.3, 4)
    found = learn(rows, method)
    assert skeleton(found) == {(k, k + 1) for k in range(4)}
    assert 0.28 < found.missing < 0.32
    complete = learn(chain(3000), method)
    a, b = (mg.infer(one.graph, progress=False).marginals for one in (found, complete))
    # Shares of 2,100 cells are compared with shares of 3,000 cells, within five standard errors of
    # the difference.
    np.testing.assert_allclose(a, b, atol=5 * 0.5 * np.sqrt(0.3 / 2100) + 0.01)


def test_networks_from_incomplete_rows_are_nearly_those_of_complete_ones():
    tables, truth = network()
    found = learn(hidden(draw(tables, 5000, 1), 0.2, 2), "network")
    complete = learn(draw(tables, 5000, 1), "network")
    lost = class_distance(truth, edges_of(found)) - class_distance(truth, edges_of(complete))
    assert lost <= 4
    # Only every ninth row is complete. Shares of 4,000 cells are compared with shares of 5,000
    # cells, within five standard errors of the difference.
    a, b = (mg.infer(one.graph, progress=False).marginals for one in (found, complete))
    np.testing.assert_allclose(a, b, atol=5 * 0.5 * np.sqrt(1 / 4000 - 1 / 5000) + 0.01)


def test_bootstrap_confidence_tells_strong_edges_from_weak_ones():
    rng = np.random.default_rng(3)
    rows = chain(300, columns=4)
    weak = np.where(rng.random(300) < 0.16, rows[:, 0], rng.integers(0, 2, 300))
    found = learn(np.column_stack([rows, weak]), score="likelihood", bootstrap=40)
    share = {frozenset((e.source, e.target)): e.confidence for e in found.edges}
    assert share[frozenset(("x0", "x1"))] == 1.0
    assert min(share.values()) < 1.0
    assert found.replicates == 40
    directed = learn(draw(network()[0], 2000, 1), "network", bootstrap=3)
    sure = [edge for edge in directed.edges if edge.compelled and edge.confidence == 1.0]
    assert all(0 <= edge.direction <= 1 for edge in directed.edges)
    assert max(edge.direction for edge in sure) > 0.5


def test_a_seed_fixes_the_result_on_any_number_of_threads():
    rows = hidden(draw(network()[0], 1000, 1), 0.1, 5)
    one, two = (learn(rows, "network", restarts=2, threads=t) for t in (1, 2))
    assert one.edges == two.edges
    assert one.to_dict()["edges"] == two.to_dict()["edges"]


def test_networks_are_written_and_read(tmp_path):
    found = learn(draw(network()[0], 1000, 1), "network")
    found.write(tmp_path / "found.bif")
    again = mg.read(tmp_path / "found.bif")
    state = draw(network()[0], 5, 2)
    np.testing.assert_allclose(
        again.log_potential(state), found.graph.log_potential(state), atol=1e-4
    )
    binned = learn({"a": np.random.default_rng(0).normal(size=200), "b": ["x y", "z"] * 100})
    binned.write(tmp_path / "binned.bif")
    assert len(mg.read(tmp_path / "binned.bif")) == 2


def test_results_are_shown_drawn_and_pickled(tmp_path):
    pytest.importorskip("matplotlib")
    found = learn(draw(network()[0], 1000, 1), "network", bootstrap=2)
    assert f"{found.edges[0].source} -" in str(found)
    assert "2 replicates" in str(found)
    html = found._repr_html_()
    assert "<table" in html
    assert "<bdi>x2</bdi>" in html
    json.dumps(found.to_dict())
    assert pickle.loads(pickle.dumps(found)).edges == found.edges
    assert len(found.plot().axes[0].texts) >= len(found.names)
    found.plot(tmp_path / "network.png")
    assert (tmp_path / "network.png").stat().st_size > 1000
    circle = learn(chain(300), "pairwise").plot().axes[0]
    assert circle.get_title().endswith("5 columns")
    with pytest.raises(mg.LearnError, match="axes must be those of Matplotlib"):
        found.plot(axes=3)
    with pytest.raises(mg.LearnError, match="no column 'z'"):
        found.conditional("z")
    with pytest.raises(mg.LearnError, match="has no parents"):
        learn(chain(300), "pairwise").parents("x0")


def test_a_search_without_time_says_so():
    with pytest.warns(UserWarning, match="cut short"):
        found = learn(draw(network()[0], 2000, 1), "network", max_time=1e-9)
    assert found.ended == "time"


def test_states_of_new_rows_are_those_of_the_graph():
    frame = {"a": ["u", "v"] * 50, "b": np.linspace(0, 1, 100)}
    found = learn(frame)
    assert found.encode({"b": [0.0, 0.99], "a": ["v", None]}).tolist() == [[1, 0], [-1, 4]]


def test_rows_of_a_frame_are_answered_in_its_own_terms():
    rng = np.random.default_rng(3)
    age = rng.normal(40.0, 10.0, 400)
    city = np.where(age > 40.0, "Rome", "Oslo")
    found = mg.learn_structure({"age": age, "city": city}, seed=1, progress=False)
    rows = {"age": [25.0, 55.0, np.nan], "city": [None, "Atlantis", "Rome"]}
    answers = found.infer_many(rows)
    assert answers.marginal("city").round(1).tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    assert answers.marginal("age")[2, :2].max() < 0.01
    assert found.infer_many({"age": [25.0]}).marginal("city")[0, 0] > 0.9


def test_relative_frequencies_without_a_prior():
    rows = np.array([[0, 0]] * 30 + [[1, 1]] * 70)
    _, table = learn(rows, pseudocount=0.0).conditional("x1")
    assert table.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def misspelled(rows, share, seed=0):
    """Return labels of two-valued columns; a share of the cells has a typo that occurs once."""
    texts = np.where(np.asarray(rows) > 0, "yes", "no").astype(object)
    typos = np.argwhere(np.random.default_rng(seed).random(texts.shape) < share)
    for number, (row, column) in enumerate(typos.tolist()):
        texts[row, column] += f"~{number}"
    return texts


@pytest.mark.parametrize("method", ["tree", "network"])
def test_rare_typos_hide_no_dependency(method):
    """With 30 to 50 typos per column, BIC would charge about 5,000 for each of the four edges."""
    rows = chain()
    dirty = misspelled(rows, 0.02)
    found = learn(dirty, method, restarts=1)
    assert skeleton(found) == {(k, k + 1) for k in range(4)}
    assert len(found.graph.domains.values(0)) > 20  # the fitted tables have all values
    dirty[::20, 3] = None
    assert skeleton(learn(dirty, method, restarts=1)) == {(k, k + 1) for k in range(4)}


def test_the_score_of_pooled_values_is_that_of_a_model_of_the_table():
    """Columns without an edge have the same BIC with and without pools."""
    rng = np.random.default_rng(3)
    rows = misspelled(rng.integers(0, 2, (1000, 2)), 0.02)
    with pytest.warns(UserWarning, match="no column depends on another one"):
        found = learn(rows, "network", forbidden=[("x0", "x1"), ("x1", "x0")])
    wanted = 0.0
    for column in rows.T:
        counts = np.unique(column, return_counts=True)[1]
        wanted += (counts * np.log(counts / 1000)).sum() - 0.5 * np.log(1000) * (len(counts) - 1)
    assert found.score == pytest.approx(wanted)


def test_tables_without_rare_values_are_not_changed():
    table = read_table(chain(), None)
    assert pooled(table) == (table, 0.0)
    one = chain().astype(object)
    one[7, 2] = "rare"
    table = read_table(one, None)
    assert pooled(table)[0] is table  # a pool of one value is that value


def test_families_are_limited_by_all_values_of_their_columns(monkeypatch):
    """Pooled tables are small, but the fitted table of a column with two parents would not be."""
    rows = np.random.default_rng(5).integers(0, 2, (1000, 3))
    rows[:, 2] = rows[:, 0] & rows[:, 1]
    dirty = misspelled(rows, 0.05)
    assert edges_of(learn(dirty, "network", restarts=0)).sum(axis=0).max() == 2
    monkeypatch.setattr(hill_climbing, "MOST_CELLS", 100 * 100)  # each column has 40 to 60 values
    assert edges_of(learn(dirty, "network", restarts=0)).sum(axis=0).max() == 1


def test_values_that_occur_once_are_named_if_no_column_depends_on_another():
    rows = np.random.default_rng(4).integers(0, 2, (400, 2))
    dirty = misspelled(rows, 0.05)
    dirty[:, 1] = rows[:, 1].astype(str)
    with pytest.warns(UserWarning, match="no column depends on another one: .* values of 'x0'"):
        found = learn(dirty)
    assert "mg.repair" in found.warnings[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not learn(rows.astype(str)).edges


def test_edges_of_bins_that_are_no_numbers_are_refused():
    table = {"a": [1.5, 2.5, 3.5], "b": [0, 1, 0]}
    with pytest.raises(mg.LearnError, match="column 'a' needs numbers as edges, got 'b'"):
        mg.learn_structure(table, bins={"a": "b"}, progress=False)


def test_no_edge_is_hidden_behind_a_column():
    """Three columns that all depend on each other have three layers of one column each."""
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(1)
    one = rng.random(2000) < 0.4
    two = one ^ (rng.random(2000) < 0.2)
    three = np.where(one & two, rng.random(2000) < 0.9, rng.random(2000) < 0.1)
    table = {"one": one, "two": two, "three": three}
    found = mg.learn_structure(table, "network", seed=1, progress=False)
    assert len(found.edges) == 3
    figure = found.plot()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    columns = axes.transData.transform(axes.lines[0].get_xydata())
    edges = [text.arrow_patch for text in axes.texts if getattr(text, "arrow_patch", None)]
    assert len(edges) == 3
    for edge in edges:
        drawn = edge.get_path().interpolated(50).vertices
        near = [np.hypot(*(drawn - column).T).min() < 5.0 for column in columns]
        assert sum(near) == 0, "edges end before the columns that they join, and pass no other"
