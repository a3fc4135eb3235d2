"""Runs beside the tables' main rows, each written as its difference from a recipe.

What a row is compared with differs from it in what its name says, and in nothing else.
"""

from dataclasses import replace
from typing import Any

from paperlib.errors import UserError, check_choice
from paperlib.evaluation.settings import EvalSettings
from paperlib.experiments.recipes import SETTINGS, eval_settings, recipe
from paperlib.experiments.sizes import SIZES
from paperlib.methods.baselines import Correctness, CosineLength, ReasoningSteps, XmlCount
from paperlib.methods.meds import ClusterPenalty, Meds
from paperlib.methods.memory_r import Exploit, Explore
from paperlib.rl.config import RunConfig
from paperlib.tasks.data import problem_count

# Memory-R+, Table 2 and Fig. 2: "K = 1, 10, 20, 30" and the rivals of Fig. 2
K_VALUES = (1, 10, 20, 30)
SMALL_DATA = ("R1", "Cosine", *(f"Memory-R+ K={k}" for k in K_VALUES))

# MEDS, Table 2. 28 stands for all layers, 14 for the later half; "14" is the method itself.
FEATURES: dict[str, dict[str, Any]] = {
    "Single cluster": {"method": "single"}, "28-diff": {"last_n": "all", "diff": True},
    "14-diff": {"diff": True}, "28": {"last_n": "all"}, "14": {},
}  # fmt: skip


def small_data(method: str, profile: str, seed: int, preset: str = "paper") -> RunConfig:
    """Memory-R+ on little data (AI-MO in the paper), ``method`` one of :data:`SMALL_DATA`. Rewards:
    correctness, XML and reasoning steps, no integer reward."""
    check_choice("method", method, SMALL_DATA)
    base = recipe("memory_r", method.split(" ")[0], profile, seed, preset)
    changes = {"method": method, **SETTINGS[profile]["memory_r_small_data"]}
    tag = "think" if changes.get("prompt") == "think" else "reasoning"
    terms: list[Any] = [Correctness(), XmlCount(tag=tag), ReasoningSteps()]
    length = changes.get("max_completion_length", base.max_completion_length)
    for term in base.terms:
        if isinstance(term, CosineLength):
            terms.append(replace(term, max_length=length) if term.unit == "tokens" else term)
        elif isinstance(term, Exploit | Explore):
            k = int(method.split("=")[1])
            # N = |D|: 2,000 in the paper, the subset's size in tiny
            queries = problem_count(changes["dataset"])
            settings = replace(term.settings, k=k, max_queries=queries)
            terms.append(replace(term, settings=settings))
    return replace(base, terms=tuple(terms), **changes)


def small_data_settings(profile: str, split: str) -> EvalSettings:
    """How :func:`small_data` runs are evaluated: as Table 1's, in their own prompt, and on
    validation problems of their own training distribution."""
    settings = eval_settings("memory_r", profile, split)
    if profile == "paper" and split == "validation":
        settings = replace(settings, task="paperlib_numinamath_validation")
    return replace(settings, prompt=small_data("R1", profile, 0).prompt)


WORLDS = tuple(SETTINGS["worlds"])


def in_world(config: RunConfig, world: str) -> RunConfig:
    """A run of the tiny profile under one of :data:`WORLDS`; ``smoke`` takes the model alone."""
    check_choice("world", world, WORLDS)
    changes = SETTINGS["worlds"][world]
    if config.profile != "tiny" or not config.max_steps:  # Base is not trained
        changes = {k: v for k, v in changes.items() if k == "model"}
    return replace(config, **changes)


AUTHORS = "Authors' weights, K=20"


def authors_policy() -> RunConfig:
    """The policy that the authors released for AI-MO, K = 20: evaluated, never trained."""
    r1 = small_data("R1", "paper", 0)
    model = next(name for name in SIZES if name.startswith("neurocoder/"))
    return replace(r1, method=AUTHORS, model=model, terms=(), max_steps=0, warmup_steps=0)


def feature_variant(name: str, profile: str, seed: int, preset: str = "paper") -> RunConfig:
    """A row of MEDS, Table 2: ``DAPO`` or one of :data:`FEATURES`. "14" is the run of Table 1."""
    check_choice("row of Table 2", name, ("DAPO", *FEATURES))
    base = recipe("meds", "DAPO" if name == "DAPO" else "MEDS", profile, seed, preset)
    if name in ("DAPO", "14"):
        return base
    settings = feature_settings(name, base)
    return replace(base, method=f"MEDS {name}", terms=(*base.terms[:-1], ClusterPenalty(settings)))


def feature_settings(name: str, base: RunConfig) -> Meds:
    """The settings of a row of MEDS, Table 2, for replay: those of ``base`` but for its name."""
    changes = dict(FEATURES[name])
    if "last_n" in changes:
        changes["last_n"] = SIZES[base.model].layers
    return replace(cluster_term(base).settings, **changes)


def cluster_term(config: RunConfig) -> ClusterPenalty:
    """The cluster penalty of a config that has one."""
    for term in config.terms:
        if isinstance(term, ClusterPenalty):
            return term
    raise UserError(f"{config.name} has no cluster penalty; take a MEDS run")
