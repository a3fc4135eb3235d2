"""Memory-R and Memory-R+: equations by hand, every choice of the settings, the released traces."""

import copy
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from rollout_batches import rollouts, saved_and_loaded

from paperlib.errors import UserError
from paperlib.experiments.recipes import recipe
from paperlib.methods.memory_r import Exploit, Explore, MemoryR, windowed_minmax
from paperlib.methods.rollouts import call_term
from paperlib.rl.config import term_to_dict

TRACES = json.loads(
    (Path(__file__).parent / "golden" / "memory_r_released.json").read_text("utf-8")
)
RIGHT, WRONG = True, False


class Lookup:
    """An encoder that looks texts up."""

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, texts):
        return torch.tensor([self.vectors[text] for text in texts], dtype=torch.float32)


def angle(degrees):
    return [float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees)))]


# Questions q0, q90, ... by their angle; responses a0, a60, ... by theirs, so that cosines are known
# by heart; responses d0, d1, ... are d away from d0, so that distances are.
TOY = Lookup(
    {f"{kind}{degrees}": angle(degrees) for kind in "qa" for degrees in range(0, 361, 10)}
    | {f"d{i}": [float(i), 0.0] for i in range(20)}
    | {"Q0": angle(0), "": [0.6, 0.8], "  \n": [0.6, 0.8], "big0": [9.0, 0.0]}
)


def make(kind, encoder=TOY, preset=MemoryR.paper, **changes):
    term = kind(preset(**changes))
    term.encoder = encoder
    return term


def pay(term, step, *rows):
    """Rewards of ``rows`` of (question, completion, correct)."""
    questions, completions, correct = zip(*rows, strict=True)
    return call_term(
        term, rollouts(completions, step=step, questions=list(questions), accuracy=correct)
    ).tolist()


def near(*values, tolerance=1e-6):
    return pytest.approx(list(values), abs=tolerance)


class Watched(Explore):
    """Keeps the raw values that the last batch was scaled with."""

    def _scale(self, values, minmax):
        self.seen = values
        return super()._scale(values, minmax)


# rows at which the window holds nothing but rounding noise, which has no right value: 6 of 124
NOISE_ROWS = {
    "one_query_per_batch_no_eviction": 1, "small_L_and_window": 2, "K3_warmup3": 1,
    "two_prompts_filed_under_first": 2,
}


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["name"])
def test_released_traces(trace):
    params, noise_rows = trace["params"], 0
    settings = MemoryR.released(
        k=params["K"], max_responses=params["L"], window=params["window"],
        explore_warmup=params["explore_min_keys"], file_under_first_prompt=True,
    )
    exploit, explore = Exploit(settings), Watched(settings)
    exploit.encoder = explore.encoder = Lookup(trace["vectors"])
    for step, recorded in enumerate(trace["batches"], start=1):
        # whole completions, so that extraction and string equality are exercised too
        rows = [
            (row["query"], f"<reasoning>\n{row['response']}\n</reasoning>\n"
             f"<answer>\n{7 if row['correct'] else '7.0'}\n</answer>", False)
            for row in recorded["rows"]
        ]
        assert pay(exploit, step, *rows) == near(*recorded["exploit"], tolerance=1e-5)
        got = pay(explore, step, *rows)
        assert min(got) >= 0 and max(got) <= 1
        for i, expected in enumerate(recorded["explore"]):
            end = max(0, len(explore.seen) - len(rows) + 1 + i)
            in_window = explore.seen[max(0, end - params["window"]) : end]
            if in_window.size and np.abs(in_window).max() < 1e-5:
                noise_rows += 1
            else:
                assert got[i] == pytest.approx(expected, abs=1e-5)
        assert max(exploit.window_values.size, explore.window_values.size) <= params["window"]
    assert noise_rows == NOISE_ROWS[trace["name"]]


def test_presets_are_those_of_the_stored_runs():
    hashes = [recipe("memory_r", method, "tiny", 0, preset).hash
              for method in ("Memory-R", "Memory-R+") for preset in ("paper", "released")]
    assert hashes == ["777ac70772", "07db480aa7", "e6d7a1373d", "b35e20407e"]
    assert MemoryR.released(max_responses=3, k=2).max_responses == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": "both"}, "unknown order 'both'; valid: read-then-write, write-then-read"),
        ({"k": 0}, "k is 0; it must be at least 1"),
        ({"explore_warmup": -1}, "explore_warmup is -1; it must be at least 0"),
        ({"epsilon": 0.0}, "epsilon is 0.0; it must be above 0, or None"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        MemoryR(**changes)


def test_eq_2_a_success_is_above_tau_a_failure_is_not():
    rows = [("q0", "a0", RIGHT), ("q90", "a0", WRONG)]
    for kind, changes, keys in [
        (Exploit, {}, ["q0"]), (Exploit, {"tau_success": 1.0}, []),
        (Exploit, {"tau_success": -0.1}, ["q0", "q90"]),
        (Explore, {}, ["q90"]), (Explore, {"tau_failure": -0.1}, []),
        (Explore, {"tau_failure": 1.0}, ["q0", "q90"]),
    ]:
        term = make(kind, **changes)
        pay(term, 1, *rows)
        assert term.memory.keys == keys


def test_eq_3_reads_the_k_nearest_questions():
    stored = [("q0", "d1"), ("q0", "d3"), ("q60", "d8"), ("q180", "d16")]
    for k, centroid in [(1, 2), (2, 4), (3, 7), (20, 7)]:  # means of 1, 3 | 8 | 16; k > 3 is all
        term = make(Exploit, k=k)
        pay(term, 1, *((*row, RIGHT) for row in stored))
        pay(term, 2, ("q10", "d0", WRONG))
        assert term.window_values.tolist() == near(centroid)


def test_eq_4_distance_to_the_centroid():
    term = make(Exploit)
    pay(term, 1, ("q0", "d2", RIGHT), ("q0", "d4", RIGHT))
    assert pay(term, 2, ("q0", "d3", RIGHT), ("q0", "d4", WRONG), ("q0", "d7", WRONG)) == near(
        1.0, 0.75, 0.0  # distances 0, 1, 4
    )


def test_eq_5_one_less_the_largest_cosine():
    term = make(Explore, explore_warmup=0)
    pay(term, 1, ("q0", "d3", WRONG), ("q0", "a90", WRONG), ("q180", "a270", WRONG))
    asking = [("q0", text, RIGHT) for text in ("a0", "a30", "a180", "d7")]  # d3, d7: a long a0
    novelty = near(0.0, 1 - np.cos(np.radians(30)), 1.0, 0.0)
    assert pay(term, 2, *asking) == novelty == term.window_values.tolist()


def test_eq_6_over_steps():
    values, steps = np.array([1.0, 3.0, 2.0, 5.0, 4.0]), np.array([1, 1, 2, 3, 3])
    scaled = windowed_minmax(values, steps, window=2, unit="steps", epsilon=1.0)
    # windows 1..3, 1..3, 1..3, 2..5, 2..5; the spread grows by epsilon
    assert scaled.tolist() == near(0.0, 2 / 3, 1 / 3, 3 / 4, 2 / 4)


@pytest.mark.parametrize("kind", [Exploit, Explore])
def test_eq_7_betas(kind):
    plain, half = (make(kind, explore_warmup=0, **{f"beta_{kind.name}": b}) for b in (1.0, 0.5))
    pay(plain, 1, ("q0", "a0", RIGHT), ("q0", "a60", WRONG))
    pay(half, 1, ("q0", "a0", RIGHT), ("q0", "a60", WRONG))
    rows = [("q0", "a0", WRONG), ("q0", "a180", WRONG)]
    one = np.array(pay(plain, 2, *rows))
    assert pay(half, 2, *rows) == near(*(0.5 * one)) and one.max() == pytest.approx(1.0)


def test_order_paper_reads_the_whole_batch_before_it_writes():
    term = make(Exploit)
    assert pay(term, 1, ("q0", "d2", RIGHT), ("q0", "d5", WRONG)) == [0.0, 0.0]
    assert term.window_values.size == 0
    pay(term, 2, ("q0", "d8", RIGHT), ("q0", "d9", WRONG))
    assert term.window_values.tolist() == near(6, 7)  # both from d2; d8 is not in yet
    pay(term, 3, ("q0", "d9", WRONG))
    assert term.window_values.tolist() == near(6, 7, 4)


def test_query_key_and_metric():
    for query_key, questions in (("text", 2), ("embedding", 1)):
        term = make(Exploit, query_key=query_key)
        pay(term, 1, ("q0", "d1", RIGHT), ("Q0", "d3", RIGHT), ("q0", "d5", RIGHT))  # one vector
        assert len(term.memory) == questions
        pay(term, 2, ("Q0", "d0", WRONG))
        assert term.window_values.tolist() == near(3)  # the older, q0: 1 and 5; or all three
    for query_metric, meets in (("cosine", 9.0), ("l2", 2.0)):
        term = make(Exploit, query_metric=query_metric)
        pay(term, 1, ("big0", "d9", RIGHT), ("q60", "d2", RIGHT))
        pay(term, 2, ("q10", "d0", WRONG))
        assert term.window_values.tolist() == near(meets)


def test_the_window_keeps_what_later_values_are_scaled_with():
    term = make(Exploit, window=2)
    pay(term, 1, ("q0", "d0", RIGHT))
    assert pay(term, 2, ("q0", "d1", WRONG), ("q0", "d3", WRONG)) == near(1, 0)
    assert pay(term, 3, ("q0", "d2", WRONG)) == near(0.5)  # over 1, 3, 2
    assert pay(term, 4, ("q0", "d4", WRONG), ("q0", "d5", WRONG)) == near(1 / 3, 0)  # 2, 4, 5
    assert pay(term, 6, ("q0", "d7", WRONG)) == near(0)  # alone: step 5 had no batch
    assert term.window_values.tolist() == [7] and term.window_steps.tolist() == [6]


def test_ties_by_exploit_flip_and_without_an_epsilon():
    for flip, epsilon, at_tie in (("before", 1e-8, 0), ("after", 1e-8, 1),
                                  ("before", None, -1), ("after", None, -1)):  # 1 - distance
        term = make(Exploit, epsilon=epsilon, exploit_flip=flip)
        pay(term, 1, ("q0", "d0", RIGHT))
        assert pay(term, 2, ("q0", "d2", WRONG), ("q0", "d2", WRONG)) == [at_tie] * 2
        assert pay(term, 3, ("q0", "d3", WRONG), ("q0", "d6", WRONG)) == near(0.75, 0)
    term = make(Explore, epsilon=None, explore_warmup=0)
    pay(term, 1, ("q0", "a0", WRONG))
    assert pay(term, 2, ("q0", "a90", WRONG), ("q0", "a90", WRONG)) == [0.0, 0.0]


@pytest.mark.parametrize("explore_empty", [0.0, 1.0])
def test_empty_memories_pay_a_constant_and_nothing_enters_the_window(explore_empty):
    explore = make(Explore, explore_warmup=0, explore_empty=explore_empty, beta_explore=0.5)
    assert pay(explore, 1, ("q0", "a0", RIGHT), ("q0", "a90", RIGHT)) == [explore_empty / 2] * 2
    assert explore.window_values.size == 0
    exploit = make(Exploit, explore_empty=explore_empty)
    assert pay(exploit, 1, ("q0", "a0", WRONG)) == [0.0] and exploit.window_values.size == 0


def test_warm_up_in_steps_is_silent_but_writes():
    term = make(Explore)
    rows = [("q0", "a0", WRONG), ("q0", "a90", WRONG)]
    assert pay(term, 1, *rows) == [0.0, 0.0]
    assert pay(term, 50, ("q0", "a180", RIGHT), ("q0", "a0", RIGHT)) == [0.0, 0.0]
    assert term.window_values.size == 0 and term.memory.counts.tolist() == [2]
    assert pay(term, 51, ("q0", "a180", RIGHT), ("q0", "a0", RIGHT)) == near(1.0, 0.0)
    for step, reward in ((50, 0.0), (51, 1.0)):  # also where an empty memory would pay
        assert pay(make(Explore, explore_empty=1.0), step, ("q0", "a0", RIGHT)) == [reward]


@pytest.mark.parametrize("k", [1, 30])
def test_a_memory_of_one_query_and_k_beyond_it(k):
    stored, asked = ("a0", "a30", "a60"), ("a0", "a60", "a90")
    # from the mean of what is stored a0 and a60 are equally far; of novelty only a90 has any
    for kind, right, rewards in ((Exploit, RIGHT, (1, 1, 0)), (Explore, WRONG, (0, 0, 1))):
        term = make(kind, k=k, explore_warmup=0, max_queries=1, window=1)
        pay(term, 1, *(("q0", text, right) for text in stored))
        found = pay(term, 2, *(("q40", text, right) for text in asked))
        assert found == near(*rewards, tolerance=1e-4)
        assert term.memory.keys == ["q40"]  # N = 1: the oldest is gone


def test_blank_texts_are_never_stored_and_match_nothing():
    for order in ("read-then-write", "write-then-read"):
        term = make(Explore, explore_warmup=0, explore_empty=1.0, order=order)
        assert pay(term, 1, ("q0", "", WRONG), ("q0", "  \n", WRONG), ("", "a0", WRONG)) == [0] * 3
        assert len(term.memory) == 0 and term.window_values.size == 0
        pay(term, 2, ("q0", "a0", WRONG))
        before = len(term.window_values)
        assert pay(term, 3, ("q0", "", WRONG), ("q0", "a90", RIGHT))[0] == 0.0
        assert len(term.window_values) == before + 1 and term.memory.counts.tolist() == [1]
    term = make(Exploit, stored_text="reasoning")
    pay(term, 1, ("q0", "<reasoning> </reasoning>d3", RIGHT))
    assert len(term.memory) == 0


def some_batches(seed, steps, start):
    rng = np.random.default_rng(seed)
    for step in range(start, start + steps):
        draws = zip(*(rng.integers(0, high, 6).tolist() for high in (9, 37, 2)), strict=True)
        yield step, [(f"q{10 * q}", f"a{10 * a}", bool(correct)) for q, a, correct in draws]


@pytest.mark.parametrize("kind", [Exploit, Explore])
@pytest.mark.parametrize("preset", [MemoryR.paper, MemoryR.released])
def test_a_saved_term_continues_exactly(kind, preset):
    changes = {"success_test": "accuracy", "k": 2, "max_queries": 5, "max_responses": 3,
               "window": 4, "explore_warmup": 3}
    term = make(kind, preset=preset, **changes)
    for step, rows in some_batches(0, 7, start=1):
        pay(term, step, *rows)
    other = make(kind, preset=preset, **changes)
    fresh = other.state_dict()  # is a state too
    other.load_state_dict(saved_and_loaded(term.state_dict()))
    paid = []
    for step, rows in some_batches(1, 7, start=8):
        paid += pay(term, step, *rows)
        assert pay(other, step, *rows) == paid[-6:]
    assert len(set(paid)) > 10
    other.load_state_dict(fresh)
    assert other.memory is None and other.window_values.size == 0


def test_a_term_is_its_settings_and_a_copy_remembers_for_itself():
    term = make(Exploit, k=3)
    pay(term, 1, ("q0", "d1", RIGHT))
    assert term_to_dict(term) == {"term": "Exploit", "settings": asdict(MemoryR.paper(k=3))}
    other = copy.deepcopy(term)
    pay(other, 2, ("q90", "d1", RIGHT))
    assert len(term.memory) == 1 and len(other.memory) == 2
    assert other == term and hash(other) == hash(term) and term != make(Explore, k=3)


def test_without_an_encoder_of_its_own_a_term_uses_the_shared_one(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "paperlib.methods.memory_r.text_encoder", lambda name: asked.append(name) or TOY
    )
    pay(Exploit(MemoryR.paper(encoder="tiny")), 1, ("q0", "d1", RIGHT))
    assert asked == ["tiny"]
