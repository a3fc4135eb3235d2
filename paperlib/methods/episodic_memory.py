"""The memory of Memory-R+ (Sec. 3.1): question -> its last L responses, as embeddings.

All vectors lie in a few contiguous tensors that grow with what is stored, so that memory use
follows the number of responses (4 d bytes each) and not N x L:

    queries   [n, d] float32      norms   [n]     lengths of the query vectors
    sums      [n, d] float64      written [n]     responses ever written for the query
    responses [m, d] float32      slots   [n, L]  where in ``responses`` each of its places lies

Both levels are rings: the i-th new query takes row i mod N, the j-th response of a query its place
j mod L. ``sums`` (of the responses held) are float64, where adding and removing float32 vectors
leaves no drift that matters. A dictionary of deques is shorter, and two to three times slower.
"""

from __future__ import annotations

from typing import Any

import torch

from paperlib.errors import UserError, check_choice

METRICS = ("cosine", "l2")
_BY_QUERY = ("queries", "norms", "sums", "written", "slots")
_SIZES = ("dim", "max_queries", "max_responses")
_TINY = torch.finfo(torch.float32).tiny


class EpisodicMemory:
    """At most ``max_queries`` (N) queries with at most ``max_responses`` (L) responses each."""

    def __init__(self, dim: int, max_queries: int, max_responses: int) -> None:
        self.dim, self.max_queries, self.max_responses = dim, max_queries, max_responses
        self.keys: list[str] = []  # by row
        self.inserted = 0  # queries ever inserted
        self.used = 0  # rows of ``responses`` in use
        self.queries = torch.empty(0, dim)
        self.norms = torch.empty(0)
        self.sums = torch.empty(0, dim, dtype=torch.float64)
        self.written = torch.empty(0, dtype=torch.int64)
        self.slots = torch.empty(0, max_responses, dtype=torch.int32)  # -1: not yet given out
        self.responses = torch.empty(0, dim)
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def counts(self) -> torch.Tensor:
        """``[n]`` responses held per query."""
        return self.written[: len(self)].clamp(max=self.max_responses)

    def write(self, keys: list[str], queries: torch.Tensor, responses: torch.Tensor) -> None:
        """Store response i under the query ``keys[i]``, in order. Both tensors ``[m, d]`` float32.

        A new key brings its query vector in and, where N are held, drops the oldest query.
        """
        for key, query, response in zip(keys, queries, responses, strict=True):
            self._append(self._row(key, query), response)

    def _row(self, key: str, query: torch.Tensor) -> int:
        if key in self._row_of:
            return self._row_of[key]
        row = self.inserted % self.max_queries
        if row < len(self):
            del self._row_of[self.keys[row]]
            self.keys[row] = key
        else:
            self.keys.append(key)
            for name in _BY_QUERY:
                setattr(self, name, _with_room(getattr(self, name), row))
            self.slots[row] = -1
        self.queries[row], self.norms[row] = query, query.norm()
        self.sums[row] = self.written[row] = 0
        self._row_of[key] = row
        self.inserted += 1
        return row

    def _append(self, row: int, response: torch.Tensor) -> None:
        written, slots = self.written.numpy(), self.slots.numpy()  # views: numpy indexes faster
        place = int(written[row]) % self.max_responses
        slot, sums = int(slots[row, place]), self.sums[row].numpy()
        if slot < 0:
            slot = self.used
            self.responses = _with_room(self.responses, slot)
            slots[row, place] = slot
            self.used += 1
        elif written[row] >= self.max_responses:  # else it is left over from an evicted query
            sums -= self.responses[slot].numpy()
        self.responses[slot] = response
        sums += response.numpy()
        written[row] += 1

    def nearest(self, vectors: torch.Tensor, k: int, metric: str) -> torch.Tensor:
        """Rows of the ``k`` queries nearest to each of ``[b, d]``: the search of eq. 3.

        Returns ``[b, min(k, n)]``, the nearest first; of equally near ones the older first.
        """
        check_choice("metric", metric, METRICS)
        n, norms = len(self), self.norms[: len(self)]
        oldest = self.inserted % self.max_queries if n == self.max_queries else 0
        products = vectors @ self.queries[:n].T
        if metric == "cosine":
            scores = products / norms.clamp(min=_TINY)  # the asking vector's length is all one
        else:
            scores = 2 * products - norms.square()  # falls as the squared distance rises
        if not min(k, n):
            return torch.zeros(len(vectors), 0, dtype=torch.int64)
        chosen = []
        for row, bar in zip(scores, scores.topk(min(k, n)).values[:, -1], strict=True):
            near = (row >= bar).nonzero()[:, 0]  # topk leaves open which of equals it takes
            near = near[((near - oldest) % n).argsort()]
            chosen.append(near[row[near].argsort(descending=True, stable=True)[:k]])
        return torch.stack(chosen)

    def centroid(self, rows: torch.Tensor) -> torch.Tensor:
        """Mean of all responses of the queries ``rows`` ``[b, k]``, pooled: ``[b, d]`` float64."""
        return self.sums[rows].sum(1) / self.counts[rows].sum(1, keepdim=True)

    def max_cosine(self, rows: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """``[b]``: each vector's largest cosine to any response of the queries ``rows`` ``[k]``."""
        held = torch.arange(self.max_responses) < self.counts[rows, None]
        found = self.responses.index_select(0, self.slots[rows][held])  # [m, d]
        lengths = vectors.norm(dim=1)[:, None] * found.norm(dim=1)
        return (vectors @ found.T / lengths.clamp(min=_TINY)).amax(1)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values: what continues exactly, after ``load_state_dict``."""
        # cloned: torch.save writes the whole storage behind a view
        tensors = {name: getattr(self, name)[: len(self)].clone() for name in _BY_QUERY}
        return {
            **{name: getattr(self, name) for name in _SIZES}, "keys": list(self.keys),
            "inserted": self.inserted, **tensors,
            "responses": self.responses[: self.used].clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a ``state_dict``."""
        for name in _SIZES:
            if state[name] != getattr(self, name):
                raise UserError(
                    f"the saved memory has {name} = {state[name]}; this one has "
                    f"{getattr(self, name)}"
                )
        for name in (*_BY_QUERY, "responses"):
            setattr(self, name, state[name].clone())
        self.keys, self.inserted = list(state["keys"]), state["inserted"]
        self.used = len(self.responses)
        self._row_of = {key: row for row, key in enumerate(self.keys)}


def _with_room(tensor: torch.Tensor, row: int) -> torch.Tensor:
    """The tensor, or half as much again, so that ``tensor[row]`` exists; new rows hold anything."""
    if row < len(tensor):
        return tensor
    grown = tensor.new_empty(max(row + 1, len(tensor) * 3 // 2, 64), *tensor.shape[1:])
    grown[: len(tensor)] = tensor
    return grown

