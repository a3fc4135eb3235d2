"""Rollouts labelled by an LLM: every label is paid for once, kept on disk, and never made up.

    from paperlib.evaluation.annotate_prompts import ERROR_CATEGORY

    annotator = Annotator(cache="annotations", max_cost_usd=2)
    print(annotator.estimate(ERROR_CATEGORY, items))
    labels = annotator.annotate(ERROR_CATEGORY, items)

Many items go as Message Batches, which cost half and may take up to a day, few as direct requests.
A process may be killed at any point: what was answered is on disk, and a batch under way is found
again by the next call. An item without a valid answer is missing, with the reason.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paperlib.errors import UserError
from paperlib.evaluation.annotate_api import Annotation, Api, Cache, open_client
from paperlib.evaluation.annotate_prompts import Item, Task

if TYPE_CHECKING:
    import anthropic

MODEL = "claude-haiku-4-5"
# US dollars per million tokens, (input, output), of direct requests; as of March 2026.
PRICES = {
    "claude-haiku-4-5": (1.0, 5.0), "claude-sonnet-4-6": (3.0, 15.0),
    "claude-opus-4-6": (5.0, 25.0),
}  # fmt: skip
BATCH_DISCOUNT = 0.5
BYTES_PER_TOKEN = 3.0  # of a request as JSON; English has 4 or more, so this errs on the dear side
MAX_TOKENS = 600  # of an answer; the estimate takes each to be that long


@dataclass(frozen=True)
class Estimate:
    """What :meth:`Annotator.annotate` would ask and pay for: an upper bound, but for answers that
    are lost on their way, so that the SDK asks again."""

    items: int
    known: int  # items whose answer is on disk or under way in a batch
    requests: int  # equal items are asked once
    batch: bool
    input_tokens: int
    output_tokens: int
    usd: float

    def __str__(self) -> str:
        how = "in batches" if self.batch else "one by one"
        return (
            f"{self.items} items, {self.known} known; {self.requests} requests {how}, at most "
            f"{self.input_tokens:,} + {self.output_tokens:,} tokens, {self.usd:.2f} US dollars"
        )


@dataclass
class Annotator:
    """Labels items with a Claude model, or from what it answered before."""

    model: str = MODEL
    # folder of the answers, one file per task, version and model; a row that is deleted is asked
    # again
    cache: Path | str = "annotations"
    max_cost_usd: float = 1.0  # nothing is asked if the estimate is above it
    offline: bool = False  # never a request, no key needed; what is not in the cache is missing
    # None: a new one with the key in ANTHROPIC_API_KEY
    client: "anthropic.Anthropic | None" = field(default=None, repr=False)
    prices: tuple[float, float] | None = None  # as in PRICES, for another model
    batch_from: int = 50  # from this number of requests on, they are sent as batches

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_cost_usd) and self.max_cost_usd >= 0):
            raise UserError(f"max_cost_usd is {self.max_cost_usd}; it must be 0 or more")
        if not self.model.strip() or self.batch_from < 1:
            raise UserError("model must be a name, batch_from at least 1")

    def estimate(self, task: Task, items: Iterable[Item]) -> Estimate:
        """What is still to be asked and its cost; needs no key and asks nothing."""
        requests = [self._request(task, item) for item in items]
        return self._todo(requests, Cache(self.cache, self.model, task))[1]

    def annotate(self, task: Task, items: Iterable[Item]) -> list[Annotation]:
        """One annotation per item, in their order."""
        client = None if self.offline else open_client(self.client)
        requests = [self._request(task, item) for item in items]
        cache, missing = Cache(self.cache, self.model, task), {}
        if client:
            with cache.locked():
                missing = self._ask(requests, Api(task, client, cache))
        found, offline = cache.read(), Annotation(None, "not in the cache, and offline")
        missing = {key: Annotation(None, reason) for key, reason in missing.items()}
        return [found.get(key) or missing.get(key, offline) for key, _ in requests]

    def _ask(self, requests: list[tuple[str, dict[str, Any]]], api: Api) -> dict[str, str]:
        todo, estimate = self._todo(requests, api.cache)
        if estimate.usd > self.max_cost_usd:
            raise UserError(
                f"this would cost up to {estimate.usd:.2f} US dollars ({estimate}), "
                f"max_cost_usd is {self.max_cost_usd:.2f}; nothing was asked"
            )
        missing = api.send(todo) if estimate.batch else {}
        for batch in api.cache.batches():
            if not dict(requests).keys().isdisjoint(batch["keys"]):
                missing |= api.collect(batch)
        return missing if estimate.batch else missing | api.ask(todo)

    def _request(self, task: Task, item: Item) -> tuple[str, dict[str, Any]]:
        """An item's key, a digest of model, prompt version and text, and its request."""
        text = task.message(item)
        identity = json.dumps([self.model, task.name, task.version, text])
        return hashlib.sha256(identity.encode()).hexdigest()[:40], {
            "model": self.model, "max_tokens": MAX_TOKENS, "system": task.system,
            "messages": [{"role": "user", "content": text}],
            "output_config": {"format": {"type": "json_schema", "schema": task.schema}},
        }

    def _todo(
        self, requests: list[tuple[str, dict[str, Any]]], cache: Cache
    ) -> tuple[dict[str, dict[str, Any]], Estimate]:
        """What is neither on disk nor under way, and what it would cost."""
        known = {*cache.read(), *(key for batch in cache.batches() for key in batch["keys"])}
        todo = {key: request for key, request in requests if key not in known}
        prices = self.prices or PRICES.get(self.model)
        if todo and prices is None:
            raise UserError(
                f"the prices of model {self.model!r} are not known here; give them as "
                f"prices=(input, output), US dollars per million tokens. Known: {', '.join(PRICES)}"
            )
        batch = len(todo) >= self.batch_from
        sizes = [len(json.dumps(r, ensure_ascii=False).encode()) for r in todo.values()]
        tokens = sum(math.ceil(size / BYTES_PER_TOKEN) for size in sizes)
        answers = MAX_TOKENS * len(todo)
        usd = (tokens * prices[0] + answers * prices[1]) / 1e6 if todo else 0.0
        return todo, Estimate(
            items=len(requests), known=sum(key in known for key, _ in requests),
            requests=len(todo), batch=batch, input_tokens=tokens, output_tokens=answers,
            usd=usd * BATCH_DISCOUNT if batch else usd,
        )
