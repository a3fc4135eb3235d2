"""Runs beside the main rows: each differs from what it is compared with as its name says."""

import pytest

from paperlib.errors import UserError
from paperlib.experiments import variants
from paperlib.experiments.recipes import PROFILES, recipe
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.tasks.data import load_problems, problem_count


def differences(a, b):
    a, b = a.to_dict(), b.to_dict()
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


def names(config):
    return [term.name for term in config.terms]


@pytest.mark.parametrize("profile", PROFILES)
def test_small_data_rows_differ_in_their_memory_only(profile):
    r1 = variants.small_data("R1", profile, 0)
    assert names(r1) == ["correctness", "xmlcount", "reasoning_steps"]
    cosine = variants.small_data("Cosine", profile, 0)
    assert cosine.terms[3].max_length == cosine.max_completion_length
    for method in variants.SMALL_DATA[1:]:
        config = variants.small_data(method, profile, 0)
        assert differences(r1, config) == {"method", "terms"}
        assert config.terms[:3] == r1.terms
    for k in variants.K_VALUES:
        memory = [t for t in variants.small_data(f"Memory-R+ K={k}", profile, 0).terms
                  if isinstance(t, Exploit | Explore)]
        assert [t.settings.k for t in memory] == [k, k]
        assert {t.settings.max_queries for t in memory} == {problem_count(r1.dataset)}


def test_tiny_small_is_half_of_the_training_problems_with_all_levels():
    small, full = load_problems("tiny-small"), load_problems("tiny-train")
    assert len(small) == problem_count("tiny-small") == len(full) / 2
    assert set(small) < set(full)
    assert [sum(p.level == level for p in small) for level in (1, 2, 3, 4)] == [16] * 4


def test_feature_variants_of_table_2():
    meds = recipe("meds", "MEDS", "tiny", 1)
    assert variants.feature_variant("14", "tiny", 1) == meds
    assert variants.feature_variant("DAPO", "tiny", 1) == recipe("meds", "DAPO", "tiny", 1)
    expected = {
        "Single cluster": ("single", None, False), "28-diff": ("hdbscan", 8, True),
        "14-diff": ("hdbscan", None, True), "28": ("hdbscan", 8, False),
    }  # fmt: skip
    for name, values in expected.items():
        config = variants.feature_variant(name, "tiny", 1)
        assert differences(meds, config) == {"method", "terms"}
        s = variants.cluster_term(config).settings
        assert (s.method, s.last_n, s.diff) == values
    paper = variants.cluster_term(variants.feature_variant("28", "paper", 1)).settings
    assert paper.last_n == 28


def test_head_to_head_families_share_everything_but_the_rewards():
    configs = {m: variants.head_to_head(m, "tiny", 0) for m in variants.HEAD_TO_HEAD}
    assert {c.prompt for c in configs.values()} == {"tags"}
    for field in ("model", "dataset", "max_steps", "prompts_per_step", "num_generations"):
        assert len({getattr(c, field) for c in configs.values()}) == 1, field
    for name in ("Cosine", "Memory-R", "Memory-R+", "R1 + MEDS penalty"):
        assert differences(configs["R1"], configs[name]) == {"method", "terms"}
        assert configs[name].terms[:5] == configs["R1"].terms
    for name in ("MEDS", "DAPO + Memory-R+ terms"):
        assert differences(configs["DAPO"], configs[name]) == {"method", "terms"}
        assert configs[name].terms[:2] == configs["DAPO"].terms


def test_a_later_setting_at_its_default_keeps_stored_runs():
    """The names of the runs behind the committed tables."""
    assert recipe("memory_r", "R1", "tiny", 0).hash == "15b48cfb9c"
    assert recipe("meds", "MEDS", "tiny", 2).hash == "97101bd3a3"


def test_unknown_names_are_refused():
    for call in (variants.small_data, variants.feature_variant, variants.head_to_head):
        with pytest.raises(UserError, match="valid"):
            call("nonsense", "tiny", 0)
    with pytest.raises(UserError, match="no model, data or prompt that both papers use"):
        variants.head_to_head("R1", "paper", 0)
