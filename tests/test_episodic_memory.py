"""The memory: rings of queries and responses, nearest queries, centroids, cosines."""

import io

import pytest
import torch

from paperlib.errors import UserError
from paperlib.methods.episodic_memory import EpisodicMemory


def vectors(*rows):
    return torch.tensor(rows, dtype=torch.float32).reshape(len(rows), -1)


def numbers(*values):
    """One-dimensional responses, so that a centroid is the mean of plain numbers."""
    return torch.tensor(values, dtype=torch.float32)[:, None]


def mean(memory, *keys):
    return memory.centroid(torch.tensor([memory.keys.index(key) for key in keys]))[0].item()


def write(memory, key, *values, query=0.0):
    memory.write([key] * len(values), numbers(*[query] * len(values)), numbers(*values))


def test_eviction_within_one_write():
    memory = EpisodicMemory(1, max_queries=1, max_responses=2)
    memory.write(["a", "b", "a"], numbers(0, 1, 2), numbers(1, 2, 3))
    assert memory.keys == ["a"] and mean(memory, "a") == 3 and memory.queries[0, 0] == 2
    write(memory, "a", 5, 6, 7, 8)  # more than L at once
    assert mean(memory, "a") == 7.5 and memory.counts.tolist() == [2]


def test_the_query_vector_comes_with_the_first_write():
    memory = EpisodicMemory(1, max_queries=4, max_responses=2)
    write(memory, "a", 1, query=5)
    write(memory, "a", 2, query=6)
    assert memory.queries[: len(memory), 0].tolist() == [5]


def test_the_centroid_pools_responses_and_does_not_average_queries():
    memory = EpisodicMemory(1, max_queries=4, max_responses=4)
    write(memory, "a", 1, 2, 3)
    write(memory, "b", 10)
    assert mean(memory, "a", "b") == 4  # not (2 + 10) / 2


def test_sums_do_not_drift():
    generator = torch.Generator().manual_seed(0)
    memory = EpisodicMemory(8, max_queries=2, max_responses=5)
    for _ in range(300):
        responses = torch.randn(4, 8, generator=generator)
        memory.write(["a"] * 4, torch.zeros(4, 8), responses)
    exact = memory.responses[0].double().mean(0)
    assert torch.allclose(memory.centroid(torch.tensor([0])), exact, rtol=0, atol=1e-14)


def full_of(*rows, max_queries=9):
    memory = EpisodicMemory(len(rows[0]), max_queries, 2)
    queries = vectors(*rows)
    memory.write([f"q{i}" for i in range(len(rows))], queries, queries)
    return memory


def test_nearest_by_cosine_and_by_l2_differ_for_vectors_that_are_not_of_unit_length():
    memory = full_of([10.0, 0.0], [1.0, 1.0], [0.0, 1.0])
    asked = vectors([2.0, 0.5])
    assert memory.nearest(asked, 2, "cosine").tolist() == [[0, 1]]
    assert memory.nearest(asked, 3, "l2").tolist() == [[1, 2, 0]]
    with pytest.raises(UserError, match="unknown metric 'dot'; valid: cosine, l2"):
        memory.nearest(asked, 1, "dot")


def test_nearest_answers_a_batch_and_gives_no_more_than_there_are():
    memory = full_of([1.0, 0.0], [0.0, 1.0])
    asked = vectors([1.0, 0.1], [0.1, 1.0], [-1.0, 0.0])
    assert memory.nearest(asked, 20, "cosine").tolist() == [[0, 1], [1, 0], [1, 0]]
    assert EpisodicMemory(2, 3, 3).nearest(asked, 2, "cosine").shape == (3, 0)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_of_equally_near_queries_the_older_comes_first(metric):
    up, down, far = [0.0, 1.0], [0.0, -1.0], [-1.0, 0.0]
    memory = full_of(far, up, down, up, max_queries=4)
    asked = vectors([1.0, 0.0])
    assert memory.nearest(asked, 2, metric).tolist() == [[1, 2]]
    assert memory.nearest(asked, 3, metric).tolist() == [[1, 2, 3]]
    memory.write(["new", "newer"], vectors(up, down), vectors(up, down))  # rows 0 and 1: youngest
    assert memory.nearest(asked, 4, metric).tolist() == [[2, 3, 0, 1]]


def test_max_cosine_over_all_responses_of_the_given_queries():
    memory = EpisodicMemory(2, max_queries=4, max_responses=2)
    memory.write(
        ["a", "a", "b", "c"], torch.zeros(4, 2),
        vectors([3.0, 0.0], [3.0, 4.0], [0.0, 2.0], [-1.0, 0.0]),
    )
    asked = vectors([5.0, 0.0], [0.0, 1.0], [-2.0, 0.0])
    best = memory.max_cosine(torch.tensor([0]), asked)
    assert best.tolist() == pytest.approx([1.0, 0.8, -0.6])
    best = memory.max_cosine(torch.tensor([0, 1]), asked)
    assert best.tolist() == pytest.approx([1.0, 1.0, 0.0])


def saved_and_loaded(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True), buffer.getbuffer().nbytes


def test_a_saved_memory_continues_exactly():
    generator = torch.Generator().manual_seed(1)

    def some(memory, rounds):
        for _ in range(rounds):
            keys = [f"q{i}" for i in torch.randint(0, 9, (6,), generator=generator).tolist()]
            memory.write(
                keys, torch.randn(6, 5, generator=generator),
                torch.randn(6, 5, generator=generator),
            )

    memory = EpisodicMemory(5, max_queries=6, max_responses=3)
    some(memory, 20)
    other = EpisodicMemory(5, max_queries=6, max_responses=3)
    other.load_state_dict(saved_and_loaded(memory.state_dict())[0])
    position = generator.get_state()
    some(memory, 20)
    generator.set_state(position)
    some(other, 20)
    mine, theirs = memory.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        same = torch.equal(value, theirs[name]) if torch.is_tensor(value) else value == theirs[name]
        assert same, name
    asked = torch.randn(3, 5, generator=generator)
    rows = memory.nearest(asked, 4, "cosine")
    assert torch.equal(rows, other.nearest(asked, 4, "cosine"))
    assert torch.equal(memory.centroid(rows[0]), other.centroid(rows[0]))
    assert torch.equal(memory.max_cosine(rows[0], asked), other.max_cosine(rows[0], asked))


def test_a_state_is_a_copy_without_the_room_to_grow():
    memory = EpisodicMemory(100, max_queries=1000, max_responses=10)
    memory.write(["a"], torch.ones(1, 100), torch.ones(1, 100))
    state = memory.state_dict()
    assert saved_and_loaded(state)[1] < 10_000  # bytes; one block of 64 rows alone has 25,600
    # room follows what is stored
    assert len(memory.responses[0]) == 1 and len(memory.queries) == 64
    memory.write(["a"], torch.ones(1, 100), torch.zeros(1, 100))
    assert state["sums"][0, 0] == 1 and state["written"].tolist() == [1]


def test_a_state_of_another_size_is_refused():
    state = EpisodicMemory(2, 3, 4).state_dict()
    with pytest.raises(UserError, match="has max_responses = 4; this one has 5"):
        EpisodicMemory(2, 3, 5).load_state_dict(state)
