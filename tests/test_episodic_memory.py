"""The memory beside its model in test_properties: drift, ties, the size of its state."""

import io

import pytest
import torch

from paperlib.methods.episodic_memory import EpisodicMemory


def vectors(*rows):
    return torch.tensor(rows, dtype=torch.float32).reshape(len(rows), -1)


def test_a_query_keeps_its_first_vector_until_it_is_evicted_and_comes_back():
    memory = EpisodicMemory(1, max_queries=1, max_responses=2)
    for key, query, held in (("a", 5, 5), ("a", 6, 5), ("b", 7, 7), ("a", 8, 8)):
        memory.write([key], vectors([query]), vectors([1]))
        assert memory.queries[: len(memory), 0].tolist() == [held]


def test_sums_do_not_drift():
    generator = torch.Generator().manual_seed(0)
    memory = EpisodicMemory(8, max_queries=2, max_responses=5)
    for _ in range(300):
        responses = torch.randn(4, 8, generator=generator)
        memory.write(["a"] * 4, torch.zeros(4, 8), responses)
    exact = memory.responses[0].double().mean(0)
    assert torch.allclose(memory.centroid(torch.tensor([0])), exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_of_equally_near_queries_the_older_comes_first(metric):
    up, down, far = [0.0, 1.0], [0.0, -1.0], [-1.0, 0.0]
    memory, queries = EpisodicMemory(2, 4, 2), vectors(far, up, down, up)
    memory.write(list("abcd"), queries, queries)
    asked = vectors([1.0, 0.0])
    assert memory.nearest(asked, 3, metric).tolist() == [[1, 2, 3]]
    memory.write(["new", "newer"], vectors(up, down), vectors(up, down))  # rows 0 and 1: youngest
    assert memory.nearest(asked, 4, metric).tolist() == [[2, 3, 0, 1]]


def test_a_state_is_a_copy_without_the_room_to_grow():
    memory = EpisodicMemory(100, max_queries=1000, max_responses=10)
    memory.write(["a"], torch.ones(1, 100), torch.ones(1, 100))
    state, file = memory.state_dict(), io.BytesIO()
    torch.save(state, file)
    assert file.tell() < 10_000  # bytes; one block of 64 rows alone has 25,600
    # room follows what is stored
    assert len(memory.responses[0]) == 1 and len(memory.queries) == 64
    memory.write(["a"], torch.ones(1, 100), torch.zeros(1, 100))
    assert state["sums"][0, 0] == 1 and state["written"].tolist() == [1]
