"""The memory of Memory-R+ (Sec. 3.1): question -> its last L responses, as embeddings.

Both levels are rings: the i-th new query takes row i mod N, the j-th response of a query place
j mod L. Memory use follows the number of responses (4 d bytes each) and not N x L: the paper's two
take 0.17 GiB after its one epoch and 2.2 GiB when full, of main memory.
"""

from typing import Any

import torch

_TINY = torch.finfo(torch.float32).tiny


class EpisodicMemory:
    """At most ``max_queries`` (N) queries with at most ``max_responses`` (L) responses each."""

    def __init__(self, dim: int, max_queries: int, max_responses: int) -> None:
        self.dim, self.max_queries, self.max_responses = dim, max_queries, max_responses
        self.inserted = 0  # queries ever inserted
        self.keys: list[str] = []  # by row, as all that follows
        self.queries = torch.empty(0, dim)  # [>= n, d], with room to grow
        self.norms = torch.empty(0)  # [>= n] their lengths
        self.responses: list[torch.Tensor] = []  # [<= L, d] of each query
        # [d] of each, in float64, where adding and removing float32 vectors leaves no drift
        self.sums: list[torch.Tensor] = []
        self.written: list[int] = []  # responses ever written for each
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def counts(self) -> torch.Tensor:
        """``[n]`` responses held per query."""
        return torch.tensor(self.written, dtype=torch.int64).clamp(max=self.max_responses)

    def write(self, keys: list[str], queries: torch.Tensor, responses: torch.Tensor) -> None:
        """Store response i under the query ``keys[i]``, in order. Both tensors ``[m, d]`` float32.

        A new key brings its query vector in and, where N are held, drops the oldest query.
        """
        for key, query, response in zip(keys, queries, responses, strict=True):
            row = self._row_of[key] if key in self._row_of else self._insert(key, query)
            held, place = self.responses[row], self.written[row] % self.max_responses
            if place < len(held):
                self.sums[row] -= held[place]
                held[place] = response
            else:
                self.responses[row] = torch.cat([held, response[None]])
            self.sums[row] += response
            self.written[row] += 1

    def _insert(self, key: str, query: torch.Tensor) -> int:
        row = self.inserted % self.max_queries
        if row < len(self):
            del self._row_of[self.keys[row]]
        elif row == len(self.queries):  # a copy now and then, not one a query
            more = max(64, row // 2)
            self.queries = torch.cat([self.queries, torch.empty(more, self.dim)])
            self.norms = torch.cat([self.norms, torch.empty(more)])
        self.queries[row], self.norms[row] = query, query.norm()
        at = slice(row, row + 1)  # behind the last row: a new one
        self.keys[at], self.written[at] = [key], [0]
        self.responses[at] = [torch.empty(0, self.dim)]
        self.sums[at] = [torch.zeros(self.dim, dtype=torch.float64)]
        self._row_of[key] = row
        self.inserted += 1
        return row

    def nearest(self, vectors: torch.Tensor, k: int, metric: str) -> torch.Tensor:
        """Rows of the ``k`` queries nearest to each of ``[b, d]``: the search of eq. 3.

        Returns ``[b, min(k, n)]``, the nearest first; of equally near ones the older first.
        """
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
        """Mean of all responses of the queries ``rows`` ``[k]``, pooled: ``[d]`` float64."""
        rows = rows.tolist()
        held = sum(min(self.written[row], self.max_responses) for row in rows)
        return torch.stack([self.sums[row] for row in rows]).sum(0) / held

    def max_cosine(self, rows: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """``[b]``: each vector's largest cosine to any response of the queries ``rows`` ``[k]``."""
        found = torch.cat([self.responses[row] for row in rows.tolist()])  # [m, d]
        lengths = vectors.norm(dim=1)[:, None] * found.norm(dim=1)
        return (vectors @ found.T / lengths.clamp(min=_TINY)).amax(1)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values: what continues exactly, after ``load_state_dict``. ``slots``
        ``[n, L]`` tells where in ``responses`` ``[m, d]`` each place lies, -1 for an empty one."""
        held = torch.arange(self.max_responses) < self.counts[:, None]
        slots = torch.full(held.shape, -1, dtype=torch.int32)
        slots[held] = torch.arange(held.sum(), dtype=torch.int32)
        none = torch.empty(0, self.dim)
        return {
            "dim": self.dim, "max_queries": self.max_queries, "max_responses": self.max_responses,
            "keys": list(self.keys), "inserted": self.inserted,
            "written": torch.tensor(self.written, dtype=torch.int64),
            # cloned: torch.save writes the whole storage behind a view
            "queries": self.queries[: len(self)].clone(), "norms": self.norms[: len(self)].clone(),
            "sums": torch.cat([none.double(), *(total[None] for total in self.sums)]),
            "slots": slots, "responses": torch.cat([none, *self.responses]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a ``state_dict`` of the same N and L."""
        self.queries, self.norms = state["queries"].clone(), state["norms"].clone()
        self.keys, self.inserted = list(state["keys"]), state["inserted"]
        self.written, self.sums = state["written"].tolist(), list(state["sums"].clone())
        each = zip(state["slots"].long(), self.counts, strict=True)
        self.responses = [state["responses"][slots[:held]] for slots, held in each]
        self._row_of = {key: row for row, key in enumerate(self.keys)}
