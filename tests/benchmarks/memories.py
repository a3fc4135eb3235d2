"""Memory-R+ rewards against the released algorithm, and how often a text is encoded."""

from collections import deque
from typing import Any

import numpy as np
import torch
from measure import alternate, paired_row, row
from rollout_batches import rollouts

from paperlib.methods.episodic_memory import EpisodicMemory
from paperlib.methods.memory_r import Exploit, Explore, MemoryR
from paperlib.methods.rollouts import Rollouts

QUERIES, RESPONSES, DIM, GROUP = 7473, 100, 384, 16


class ListMemory:
    """The released algorithm, written from its description: a list of query vectors and one of
    response lists; each rollout by itself searches all queries by L2, then goes through the
    responses of its K neighbours."""

    def __init__(self, queries: np.ndarray, responses: np.ndarray, k: int) -> None:
        self.queries = queries  # kept as the array a flat index has
        self.squares = (queries**2).sum(1)
        self.lists = [deque(rows, maxlen=len(rows)) for rows in responses]
        self.place = {q.tobytes(): i for i, q in enumerate(queries)}
        self.k = k
        self.window: deque[float] = deque(maxlen=100)

    def write(self, query: np.ndarray, response: np.ndarray) -> None:
        self.lists[self.place[query.tobytes()]].append(response)

    def neighbours(self, query: np.ndarray) -> np.ndarray:
        distances = self.squares - 2 * (self.queries @ query)
        near = np.argpartition(distances, self.k)[: self.k]
        return np.stack([response for i in near for response in self.lists[i]])

    def scale(self, value: float) -> float:
        self.window.append(value)
        low, high = min(self.window), max(self.window)
        return (value - low) / (high - low) if high > low else 0.0

    def exploit(self, query: np.ndarray, response: np.ndarray) -> float:
        centre = self.neighbours(query).mean(0)
        return 1 - self.scale(float(np.linalg.norm(response - centre)))

    def explore(self, query: np.ndarray, response: np.ndarray) -> float:
        return self.scale(1 - float((self.neighbours(query) @ response).max()))


class Given:
    """An encoder that knows its texts' vectors already: encoding is left out."""

    def __init__(self, vectors: dict[str, torch.Tensor]) -> None:
        self.vectors = vectors

    def encode(self, texts: list[str]) -> torch.Tensor:
        return torch.stack([self.vectors[text] for text in texts])


def full_memory(queries: torch.Tensor, responses: torch.Tensor, limit: int) -> EpisodicMemory:
    """A memory of ``[n, d]`` questions "q0" ... with ``[n, l, d]`` responses each."""
    n, length, dim = responses.shape
    memory = EpisodicMemory(dim, n, limit)
    memory.queries, memory.norms = queries, queries.norm(dim=1)
    memory.sums, memory.written = list(responses.double().sum(1)), [length] * n
    memory.responses = [each.clone() for each in responses]
    memory.keys, memory.inserted = [f"q{i}" for i in range(n)], n
    memory._row_of = {key: row for row, key in enumerate(memory.keys)}
    return memory


def terms_and_batches(n: int, length: int, k: int, batch: int = 64):
    """Exploit and Explore with full memories, and an endless stream of batches for them."""
    torch.manual_seed(0)
    unit = torch.nn.functional.normalize
    queries = unit(torch.randn(n, DIM), dim=1)
    responses = unit(torch.randn(n, length, DIM), dim=2)
    settings = MemoryR.paper(k=k, max_queries=n, max_responses=RESPONSES, explore_warmup=0)
    terms = [Exploit(settings), Explore(settings)]
    for term in terms:
        term.memory = full_memory(queries.clone(), responses.clone(), RESPONSES)
    rng = np.random.default_rng(0)
    step = 0

    def batches() -> Rollouts:
        nonlocal step
        step += 1
        asked = np.repeat(rng.choice(n, batch // GROUP, replace=False), GROUP)
        texts = [f"a{step}-{i}" for i in range(batch)]
        vectors = {f"q{i}": queries[i] for i in asked}
        vectors.update(zip(texts, unit(torch.randn(batch, DIM), dim=1), strict=True))
        for term in terms:
            term.encoder = Given(vectors)
        return rollouts(
            texts, step=step, questions=[f"q{i}" for i in asked], num_generations=GROUP,
            accuracy=rng.integers(0, 2, batch),
        )

    return terms, batches, queries, responses


def against_released(repeats: int) -> list[dict[str, Any]]:
    """A batch of 64 rollouts on two full memories, K = 20."""
    terms, batches, queries, responses = terms_and_batches(QUERIES, RESPONSES, 20)
    double = [ListMemory(queries.numpy(), responses.numpy(), 20) for _ in terms]
    batch = batches()

    def ours():
        for term in terms:
            term(batch)

    def released():
        encode = terms[0].encoder.encode
        questions = encode(list(batch.questions)).numpy()
        answers = encode(list(batch.completions)).numpy()
        for query, answer, right in zip(questions, answers, batch.accuracy, strict=True):
            double[0 if right else 1].write(query, answer)
            double[0].exploit(query, answer)
            double[1].explore(query, answer)

    times = alternate(ours, released, repeats)
    per_call = np.median(times[1]) / 128
    parts = [[m.queries, m.norms, *m.responses, *m.sums] for m in (t.memory for t in terms)]
    held = sum(tensor.nbytes for tensors in parts for tensor in tensors) / 2**30
    epoch = 4 * DIM * QUERIES * GROUP / 2**30
    size = "full memories, 7,473 x 100 vectors of 384, both together"
    return [
        paired_row("Memory-R+ rewards of 64 rollouts, full memories, K = 20",
                   "released algorithm (double)", times, 1 / 50,
                   f"the double takes {1000 * per_call:.2f} ms per rollout and memory"),
        row(size, "1 GiB", held, 1.0, 1.0, "the vectors alone, in float32, are "
            f"{2 * 4 * QUERIES * RESPONSES * DIM / 2**30:.2f} GiB; the responses of one epoch "
            f"(7,473 x 16) are {epoch:.2f} GiB", unit="GiB"),
    ]
