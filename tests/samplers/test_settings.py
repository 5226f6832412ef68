"""All registered samplers, layouts, implicit groups and estimators are tested."""

from minigibbs.graph.factors import KINDS
from minigibbs.graph.factors.implicit.base import Implicit
from minigibbs.samplers import SINGLE_SITE, SWEEPING
from minigibbs.samplers.encoding import ESTIMATORS
from minigibbs.samplers.registry import VARIANTS, choose_variant
from tests.settings import EXACT, GOLDEN, IMPLICIT_CASES, LAYOUT_CASES, SETTINGS, SWEEPS


def test_every_registered_sampler_has_a_setting_with_golden_draws():
    missing = SINGLE_SITE.keys() - GOLDEN.keys()
    assert not missing, f"add a Setting with golden draws to tests/settings.py for {missing}"


def test_every_sampler_that_sweeps_has_a_setting_with_golden_draws():
    golden = {setting.sampler.name for setting in SWEEPS.values() if setting.golden is not None}
    missing = SWEEPING.keys() - golden - {"tempering"}  # tested in test_tempering.py
    assert not missing, f"add a SweepSetting with golden draws to tests/settings.py for {missing}"


def test_every_exact_sampler_has_its_distribution_tested():
    missing = {name for name, kind in SINGLE_SITE.items() if kind.exact}
    missing -= {setting.sampler.name for setting in EXACT.values()}
    assert not missing, f"add an exact Setting to tests/settings.py for {missing}"


def test_every_estimator_has_a_setting():
    chosen = [setting.sampler.estimator_for(setting.graph) for setting in estimating()]
    missing = set(ESTIMATORS.values()) - {type(estimator) for estimator in chosen}
    assert not missing, f"add a Setting to tests/settings.py for {missing}"


def estimating():
    return [s for s in SETTINGS.values() if hasattr(s.sampler, "estimator_for")]


def test_every_layout_has_a_case_that_uses_it():
    missing = {variant.name for variant, _ in VARIANTS} - LAYOUT_CASES.keys()
    assert not missing, f"add a Case to LAYOUT_CASES in tests/settings.py for {missing}"
    for name, case in LAYOUT_CASES.items():
        split = case.sampler.split(case.graph)
        assert choose_variant(case.graph, split).name == name


def test_every_kind_of_implicit_group_has_a_case():
    """Every user-facing kind has a case; copies, for ladders, are tested with these kinds."""
    written = {name for name, kind in KINDS.items() if issubclass(kind, Implicit)}
    missing = written - IMPLICIT_CASES.keys()
    assert not missing, f"add a Case to IMPLICIT_CASES in tests/settings.py for {missing}"
    for name, case in IMPLICIT_CASES.items():
        kinds = [group.kind for group in case.graph.implicits]
        assert kinds[0] == name or (name == "several" and len(kinds) > 2)
