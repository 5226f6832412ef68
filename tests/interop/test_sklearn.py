"""Estimators: scikit-learn's conventions, exact posteriors, and tables of every kind."""

import pickle

import numpy as np
import pytest

import minigibbs as mg

pytest.importorskip("sklearn")
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from minigibbs.sklearn import (
    BoltzmannMachine,
    CategoricalImputer,
    RestrictedBoltzmannMachine,
    TableRepairer,
)
from tests.learning.test_mixing import nearer, patterns


@parametrize_with_checks(
    [
        CategoricalImputer(random_state=0),
        TableRepairer(),
        BoltzmannMachine(steps=20, random_state=0),
        RestrictedBoltzmannMachine(n_components=2, steps=20, random_state=0),
    ]
)
def test_conventions(estimator, check):
    check(estimator)


def weather(rows=400, seed=0):
    """Return a table of three dependent columns, and the same with a fifth of the cells missing."""
    rng = np.random.default_rng(seed)
    sky = rng.choice(["sun", "rain"], rows)
    street = np.where(rng.random(rows) < 0.9, np.where(sky == "rain", "wet", "dry"), "wet")
    mood = np.where(rng.random(rows) < 0.85, np.where(sky == "sun", "good", "bad"), "good")
    whole = np.stack([sky, street, mood], axis=1).astype(object)
    holes = whole.copy()
    holes[rng.random(whole.shape) < 0.2] = None
    return whole, holes


NAMES = ["sky", "street", "mood"]


def test_cells_are_filled_in_with_exact_posteriors():
    _, holes = weather()
    imputer = CategoricalImputer("tree", random_state=0).fit(holes)
    filled = imputer.transform(holes)
    present = holes != np.array(None)
    assert (filled[present] == holes[present]).all()
    assert (filled != np.array(None)).all()
    shares = imputer.predict_proba(holes)
    graph = imputer.structure_.graph
    for row in np.flatnonzero(~present.all(axis=1))[:20].tolist():
        known = {f"x{k}": holes[row, k] for k in range(3) if holes[row, k] is not None}
        answer = mg.infer(graph.condition(known), progress=False)
        for k, name in enumerate(["x0", "x1", "x2"]):
            mine = shares[row, imputer.slices_[name]]
            assert mine == pytest.approx(answer.marginal(name).probability, abs=1e-9)
            if holes[row, k] is None:
                assert filled[row, k] == imputer.categories_[k][mine.argmax()]


def test_missing_numbers_become_the_median_of_their_distribution():
    """The most probable of 10 bins has 30% of the cells; the median is in one that has 10%."""
    rng = np.random.default_rng(0)
    size = np.where(rng.random(2000) < 0.3, 1000.0, rng.integers(0, 700, 2000))
    rows = np.stack([size, rng.integers(0, 2, 2000)], axis=1).astype(object)
    rows[0, 0] = None
    imputer = CategoricalImputer("tree", random_state=0).fit(rows)
    found = imputer.transform(rows)[0, 0]
    share = imputer.predict_proba(rows)[0, imputer.slices_["x0"]]
    assert imputer.categories_[0][share.argmax()] == 1000
    assert found == pytest.approx(np.median(size), abs=60)  # a bin is about 100 wide


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_one_row_without_text_is_filled(library):
    """A column without values is one of floats, or of no type: it gets the type of the fit."""
    module = pytest.importorskip(library)
    made = module.table if library == "pyarrow" else module.DataFrame
    whole = {"sky": ["sun", "rain"] * 20, "street": ["dry", "wet"] * 20}
    imputer = CategoricalImputer(random_state=0).fit(made(whole))
    empty = np.nan if library == "pandas" else None
    row = made({"sky": ["sun"], "street": [empty]})
    assert imputer.transform(row)["street"].to_numpy().tolist() == ["dry"]
    if library == "pandas":
        row.index = ["case 7"]
        assert imputer.transform(row).loc["case 7"].tolist() == ["sun", "dry"]
        both = module.DataFrame({"sky": [np.nan] * 2, "street": [np.nan] * 2})
        assert not imputer.transform(both).isna().any().any()


def test_arrays_of_floats_and_of_short_text_hold_all_values():
    rows = np.array([["sun", "dry"], ["rain", "wet"]] * 20, dtype=object)
    imputer = CategoricalImputer(random_state=0).fit(rows)
    assert set(imputer.transform(np.full((1, 2), np.nan))[0]) <= {"sun", "rain", "dry", "wet"}
    towns = np.array([["1", "Rome"], ["2", "Madrid"]] * 20)
    repairer = TableRepairer().fit(towns)
    assert repairer.transform(np.array([["2", "Madr"]]))[0].tolist() == ["2", "Madrid"]


def test_values_that_did_not_occur_in_the_fit_count_as_missing():
    rows = np.array([["sun", "dry"], ["rain", "wet"]] * 20, dtype=object)
    imputer = CategoricalImputer(random_state=0).fit(rows)
    strange = np.array([["fog", None], [None, None]], dtype=object)
    assert imputer.transform(strange)[0, 0] == "fog"
    shares = imputer.predict_proba(strange)
    assert shares[0] == pytest.approx(shares[1])


def test_draws_for_multiple_imputation_follow_the_posterior():
    """The share of a value among 300 draws is within 4.5 deviations: 7 in a million fail."""
    _, holes = weather(200)
    imputer = CategoricalImputer("tree", random_state=0).fit(holes)
    one = np.array([[None, "dry", None]], dtype=object)
    share = imputer.predict_proba(one)[0, imputer.slices_["x0"]]
    drawn = imputer.sample(np.repeat(one, 300, axis=0), n_samples=1)[0]
    place = imputer.categories_[0].tolist().index("rain")
    wanted = share[place]
    found = np.mean(drawn[:, 0] == "rain")
    assert abs(found - wanted) < 4.5 * np.sqrt(wanted * (1 - wanted) / 300)
    assert (drawn[:, 1] == "dry").all()
    two = imputer.sample(holes, n_samples=2)
    assert (two[0] != two[1]).any()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_come_back_as_what_they_were(library):
    module = pytest.importorskip(library)
    _, holes = weather(120)
    columns = {name: holes[:, k].tolist() for k, name in enumerate(NAMES)}
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    imputer = CategoricalImputer("tree", random_state=0)
    filled = imputer.fit_transform(frame)
    assert type(filled) is type(frame)
    assert type(imputer.sample(frame, 1)[0]) is type(frame)
    array = CategoricalImputer("tree", random_state=0).fit_transform(holes)
    got = filled.to_pandas() if library == "pyarrow" else filled
    assert [list(got[name]) for name in NAMES] == array.T.tolist()
    repaired = TableRepairer().fit_transform(frame)
    assert type(repaired) is type(frame)


@pytest.mark.parametrize("codes", ["int8", "uint32"])
@pytest.mark.parametrize("values", ["string", "large_string"])
def test_categories_of_pyarrow_keep_their_type(codes, values):
    pyarrow = pytest.importorskip("pyarrow")
    _, holes = weather(60)
    kind = pyarrow.dictionary(
        pyarrow.type_for_alias(codes), pyarrow.type_for_alias(values), ordered=True
    )
    columns = {name: pyarrow.array(holes[:, k].tolist()).cast(kind) for k, name in enumerate(NAMES)}
    frame = pyarrow.table(columns)
    filled = CategoricalImputer("tree", random_state=0).fit_transform(frame)
    assert filled.schema == frame.schema
    assert sum(column.null_count for column in filled.columns) == 0


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_text_of_pyarrow_keeps_its_type(kind):
    pyarrow = pytest.importorskip("pyarrow")
    _, holes = weather(60)
    text = pyarrow.type_for_alias(kind)
    columns = {name: pyarrow.array(holes[:, k].tolist(), text) for k, name in enumerate(NAMES)}
    frame = pyarrow.table(columns)
    for filled in (
        CategoricalImputer("tree", random_state=0).fit_transform(frame),
        mg.repair(frame).frame,
    ):
        assert filled.schema == frame.schema
        assert not any(column.null_count for column in filled.columns)


@pytest.mark.filterwarnings("ignore:X .*feature names")
def test_columns_are_those_of_the_fit_whatever_the_table_calls_them():
    """Column names may be numbers; estimators fitted to a frame accept arrays, and vice versa."""
    pandas = pytest.importorskip("pandas")
    _, holes = weather(60)
    named, numbered = pandas.DataFrame(holes, columns=NAMES), pandas.DataFrame(holes)
    wanted = CategoricalImputer("tree", random_state=0).fit_transform(holes)
    for fitted in (holes, named, numbered):
        imputer = CategoricalImputer("tree", random_state=0).fit(fitted)
        names = NAMES if fitted is named else ["x0", "x1", "x2"]
        assert list(imputer.slices_) == list(names)
        repairer = TableRepairer().fit(fitted)
        for given in (holes, named, numbered):
            filled = imputer.transform(given)
            assert type(filled) is type(given)
            assert (np.asarray(filled) == wanted).all()
            assert imputer.predict_proba(given).shape == (
                60,
                len(np.concatenate(imputer.categories_)),
            )
            assert type(repairer.transform(given)) is type(given)
    cells = TableRepairer().fit(named).repairs(named).cells
    assert isinstance(cells, pandas.DataFrame)


def test_a_restricted_machine_starts_at_the_principal_directions():
    """Two patterns are one direction of large variance; other hidden units start near 0."""
    rng = np.random.default_rng(0)
    pattern = rng.integers(0, 2, 20)
    rows = pattern ^ (rng.random((400, 1)) < 0.5) ^ (rng.random((400, 20)) < 0.1)
    machine = RestrictedBoltzmannMachine(3, steps=0, random_state=0).fit(rows)
    first, *others = machine.components_
    assert abs(np.corrcoef(first, pattern)[0, 1]) > 0.9
    assert np.abs(others).mean() < np.abs(first).mean() / 2


def test_pipelines_searches_and_pickles():
    from sklearn.feature_selection import SelectKBest
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    whole, holes = weather(150)
    pipe = make_pipeline(
        CategoricalImputer("tree", random_state=0),
        OneHotEncoder(sparse_output=True),
        SelectKBest(k=2),
    )
    assert pipe.fit_transform(holes, whole[:, 0] == "sun").shape == (150, 2)
    imputer = pickle.loads(pickle.dumps(CategoricalImputer("tree", random_state=0).fit(holes)))
    assert (imputer.transform(holes) == imputer.transform(holes)).all()
    rows = (whole == np.array(["sun", "wet", "good"])).astype(float)
    search = GridSearchCV(BoltzmannMachine(method="exact"), {"l2": [1e-3, 10.0]}, cv=2).fit(rows)
    assert search.best_params_ == {"l2": 1e-3}
    assert pickle.loads(pickle.dumps(search.best_estimator_)).score(rows) == pytest.approx(
        search.best_estimator_.score(rows)
    )


def test_the_log_likelihood_of_a_boltzmann_machine_is_exact():
    rng = np.random.default_rng(0)
    rows = (rng.random((300, 4)) < 0.5).astype(int)
    rows[:, 1] = rows[:, 0]
    machine = BoltzmannMachine(method="exact", l2=1e-3).fit(sparse.csr_array(rows))
    states = np.array(np.meshgrid(*[[0, 1]] * 4, indexing="ij")).reshape(4, -1).T
    total = np.exp(machine.score_samples(states)).sum()
    assert total == pytest.approx(1.0, abs=1e-9)
    value, error = machine.log_likelihood(rows)
    assert (value, error) == (machine.score(rows), 0.0)
    # The entropy of the data is three bits.
    assert value == pytest.approx(-3 * np.log(2), abs=0.1)
    assert machine.coupling_[0, 1] > 1.0
    drawn = machine.sample(2000, random_state=1)
    assert np.mean(drawn[:, 0] == drawn[:, 1]) > 0.9
    chances = machine.transform(states)
    at = np.flatnonzero((states == [1, 0, 0, 0]).all(axis=1))[0]
    weight = np.exp(machine.score_samples(np.array([[1, 0, 0, 0], [1, 1, 0, 0]])))
    assert chances[at, 1] == pytest.approx(weight[1] / weight.sum())


def test_the_likelihood_of_a_restricted_machine_sums_to_one():
    rng = np.random.default_rng(0)
    rows = np.repeat([[0, 0, 1, 1], [1, 1, 0, 0]], 50, axis=0)
    rows[rng.random(rows.shape) < 0.05] ^= 1
    machine = RestrictedBoltzmannMachine(3, steps=200, random_state=0).fit(rows)
    states = np.array(np.meshgrid(*[[0, 1]] * 4, indexing="ij")).reshape(4, -1).T
    assert np.exp(machine.score_samples(states)).sum() == pytest.approx(1.0, abs=1e-9)
    assert machine.score(rows) > -4 * np.log(2)
    assert machine.transform(rows).shape == (100, 3)
    assert machine.get_feature_names_out().tolist()[0] == "restrictedboltzmannmachine0"
    assert machine.sample(5).shape == (5, 4)


@pytest.mark.parametrize("kind", [BoltzmannMachine, RestrictedBoltzmannMachine])
def test_log_z_is_that_of_the_stated_fields_and_couplings(kind):
    rng = np.random.default_rng(0)
    rows = (rng.random((200, 4)) < [0.1, 0.3, 0.6, 0.9]).astype(int)
    machine = kind(steps=30, random_state=0).fit(rows)
    spins = np.array(np.meshgrid(*[[-1, 1]] * 4, indexing="ij")).reshape(4, -1).T
    if kind is BoltzmannMachine:
        pairs = 0.5 * np.einsum("ij,jk,ik->i", spins, machine.coupling_, spins)
        free = spins @ machine.field_ + pairs
    else:
        inputs = spins @ machine.components_.T + machine.hidden_field_
        free = spins @ machine.field_ + np.logaddexp(inputs, -inputs).sum(axis=1)
    assert machine.log_z_ == pytest.approx(np.log(np.exp(free).sum()), abs=1e-6)
    assert mg.infer(machine.graph_).log_z == pytest.approx(machine.log_z_, abs=1e-6)
    found = machine.score_samples((spins + 1) // 2)
    assert found == pytest.approx(free - machine.log_z_, abs=1e-6)


def test_machines_learn_until_they_converge_by_default(monkeypatch):
    from minigibbs.interop.sklearn import machines

    asked = []

    def watched(*args, **options):
        asked.append(options.pop("steps"))
        return mg.learn(*args, steps=2, **options)

    monkeypatch.setattr(machines, "learn", watched)
    rows = [[0, 1], [1, 0], [1, 1]]
    BoltzmannMachine(random_state=0).fit(rows)
    RestrictedBoltzmannMachine(2, random_state=0).fit(rows)
    assert set(asked) == {None}


def test_draws_of_wide_machines_come_from_chains(monkeypatch):
    from minigibbs.interop.sklearn import machines

    def refuse(*_, **__):
        raise mg.TooLargeError("too wide")

    rows = np.repeat([[0, 0], [1, 1]], 50, axis=0)
    machine = BoltzmannMachine(method="exact", l2=0.01, random_state=0).fit(rows)
    monkeypatch.setattr(machines, "exact_draws", refuse)
    drawn = machine.sample(403)
    assert drawn.shape == (403, 2)
    assert np.mean(drawn[:, 0] == drawn[:, 1]) > 0.7


def test_machines_whose_weighted_chains_missed_the_modes_learn_with_tempered_chains():
    """Three quarters of the rows are near one of two patterns.

    With weighted chains alone, the machine had 0.08 of its probability near that pattern.
    """
    rows, pattern = patterns(0.75, columns=60)
    machine = RestrictedBoltzmannMachine(40, log_z_time="3s", random_state=0).fit(rows)
    drawn = machine.sample(1000, random_state=1)  # 8 chains, several hundred crossings
    assert abs(nearer(drawn, pattern) - nearer(rows, pattern)) < 0.2
    assert abs(drawn.mean(axis=0) - rows.mean(axis=0)).max() < 0.2


def test_masked_cells_are_missing():
    rows = np.ma.array([[0.0, 0.0], [1.0, 1.0]] * 20, mask=False)
    rows[0, 1] = np.ma.masked
    rows.data[0, 1] = 1.0  # what the mask hides
    filled = CategoricalImputer(random_state=0).fit(rows).transform(rows)
    assert filled[0].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="contains NaN"):
        BoltzmannMachine().fit(rows)


def test_numbers_that_numpy_cannot_hold_are_refused_in_words():
    polars = pytest.importorskip("polars")
    wide = polars.Series([0, 2**70] * 5, dtype=polars.Int128)
    with pytest.raises(mg.LearnError, match=r"X: .*128"):
        BoltzmannMachine().fit(polars.DataFrame({"a": wide}))


def test_repairs_name_cells_of_new_rows():
    rows = np.array([["1", "Rome"], ["2", "Oslo"]] * 20, dtype=object)
    repairer = TableRepairer().fit(rows)
    found = repairer.repairs(np.array([["2", "Oslx"]], dtype=object))
    assert found.cells["after"].tolist() == ["Oslo"]


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
def test_sparse_tables_stay_sparse(kind):
    rng = np.random.default_rng(0)
    rows = (rng.random((80, 3)) < 0.4).astype(float)
    rows[:, 1] = rows[:, 0]
    holes = rows.copy()
    holes[:10, 1] = np.nan
    filled = CategoricalImputer("tree", random_state=0).fit_transform(kind(holes))
    assert sparse.issparse(filled)
    assert (filled.toarray() == rows).mean() > 0.98


def test_odd_columns_have_an_answer():
    rng = np.random.default_rng(0)
    rows = {
        "constant": ["x"] * 60,
        "empty": [None] * 60,
        "number": rng.normal(size=60).tolist(),
        "mixed": [1, "1", True] * 20,
        "kind": rng.choice(["a", "b"], 60).tolist(),
    }
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: pandas.Series(v, dtype=object) for name, v in rows.items()})
    frame.loc[:5, ["constant", "kind", "number", "mixed"]] = None
    imputer = CategoricalImputer(random_state=0).fit(frame)
    filled = imputer.transform(frame)
    assert filled["empty"].isna().all()
    assert not filled.drop(columns="empty").isna().any().any()
    assert filled["constant"].unique().tolist() == ["x"]
    assert filled["number"].between(-3, 3).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["a", "b"]], "minimum of 2 is required|1 sample"),
        ([[str(k), "x"] for k in range(1500)], "1,500 different values, more than max_categories"),
    ],
    ids=["one row", "many categories"],
)
def test_bad_tables_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        CategoricalImputer().fit(np.array(rows, dtype=object))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (
            CategoricalImputer(bins="many"),
            "CategoricalImputer: bins must be an integer, got 'many'",
        ),
        (TableRepairer(missing=None), "TableRepairer: missing must be a list, got None"),
        (TableRepairer(certainty="high"), "certainty must be a number, got 'high'"),
        (BoltzmannMachine(threshold={1}), "BoltzmannMachine: threshold must be a number"),
        (BoltzmannMachine(random_state="x"), "random_state: 'x' cannot be used to seed"),
        (RestrictedBoltzmannMachine(2.5), "n_components must be an integer, got 2.5"),
    ],
)
def test_parameters_of_a_wrong_type_are_named_by_fit(estimator, message):
    with pytest.raises(mg.LearnError, match=message):
        estimator.fit(np.array([[0, 1], [1, 0], [1, 1]]))


def test_inherited_methods_check_their_arguments():
    machine = BoltzmannMachine(steps=2, random_state=0).fit([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(mg.LearnError, match="n_samples must be an integer, got 'many'"):
        machine.sample("many")
    with pytest.raises(mg.LearnError, match=r"X: .* too large"):
        machine.score([[10**400, 1]])


def test_all_missing_and_duplicate_names():
    pandas = pytest.importorskip("pandas")
    nothing = np.full((4, 2), None, dtype=object)
    assert (CategoricalImputer().fit_transform(nothing) == nothing).all()
    frame = pandas.DataFrame([["a", "b"]] * 3, columns=["x", "x"])
    numbers = pandas.DataFrame([[0, 1]] * 3, columns=["x", "x"])
    for estimator, given in (
        (CategoricalImputer(), frame),
        (TableRepairer(), frame),
        (BoltzmannMachine(), numbers),
    ):
        with pytest.raises(mg.LearnError, match="X: more than one column is called 'x'"):
            estimator.fit(given)
        with pytest.raises(mg.LearnError, match="a frame, an array or a sparse matrix, got dict"):
            estimator.fit({"x": [0, 1]})


def test_wide_models_are_sampled():
    """Exact answers are compared with chains: 200 sweeps give deviations below 0.2."""
    from sklearn.utils import check_random_state

    from minigibbs.interop.sklearn.imputer import _sampled

    graph = mg.models.ising_lattice(3, beta=0.2, periodic=False)
    codes = np.full((50, 9), -1)
    codes[:, 0] = 1
    found = _sampled(graph, codes, check_random_state(0)).mean(axis=0)
    exact = mg.infer(graph.condition({0: 1}), progress=False).shares.pooled
    assert found == pytest.approx(exact, abs=0.06)  # 10,000 correlated draws: above 5 deviations


def test_strange_seeds_are_refused():
    rows = [[0, 0], [1, 1], [0, 1]]
    for seed in (np.timedelta64(1, "D"), -1):
        with pytest.raises(mg.LearnError, match="random_state"):
            BoltzmannMachine(steps=2, random_state=seed).fit(rows)


def test_hidden_units_that_do_not_fit_into_memory_are_refused():
    with pytest.raises(mg.TooLargeError, match="hidden units"):
        RestrictedBoltzmannMachine(n_components=2**63, steps=2).fit([[0, 1], [1, 0]])


def test_a_negative_random_state_of_a_repair_is_refused():
    rows = np.array([["a", "b"], ["c", "d"]] * 5, dtype=object)
    with pytest.raises(mg.LearnError, match="random_state must be at least 0, got -1"):
        TableRepairer(random_state=-1).fit(rows)


def test_machines_of_a_million_columns_are_refused_before_memory_is_taken():
    rows = sparse.random(3, 1_000_000, 1e-5, random_state=0, format="csr")
    with pytest.raises(mg.TooLargeError, match=r"499,999,500,000 couplings needs .*fewer columns"):
        BoltzmannMachine().fit(rows)
