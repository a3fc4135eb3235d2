"""Rollouts labelled by an LLM: every label is paid for once, kept on disk, and never made up.

    annotator = Annotator(cache="annotations", max_cost_usd=2)
    print(annotator.estimate(ERROR_CATEGORY, items))
    labels = annotator.annotate(ERROR_CATEGORY, items)

Many items go as a Message Batch, which costs half and may take up to a day, few as direct requests.
A process may be killed at any point: what was answered is on disk, and a batch under way is found
again by the next call. An item without a valid answer is missing, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paperlib.errors import UserError
from paperlib.evaluation.annotate_api import (
    Annotation,
    Api,
    Failed,
    open_client,
    read_line,
    read_message,
)
from paperlib.evaluation.annotate_cache import Cache
from paperlib.evaluation.annotate_prompts import (
    ACROSS_STEP_NOVELTY,
    CATEGORIES,
    ERROR_CATEGORY,
    TINY_CATEGORIES,
    WITHIN_STEP_DIVERSITY,
    Item,
    Task,
)

if TYPE_CHECKING:
    import anthropic

__all__ = [
    "ACROSS_STEP_NOVELTY", "CATEGORIES", "ERROR_CATEGORY", "TINY_CATEGORIES",
    "WITHIN_STEP_DIVERSITY", "Annotation", "Annotator", "Estimate", "Task",
]  # fmt: skip

MODEL = "claude-haiku-4-5"
# US dollars per million tokens, (input, output), of direct requests; as of March 2026.
PRICES = {
    "claude-haiku-4-5": (1.0, 5.0),
    "claude-sonnet-4-6": (3.0, 15.0),
    "claude-opus-4-6": (5.0, 25.0),
}
BATCH_DISCOUNT = 0.5
BYTES_PER_TOKEN = 3.0  # of a request as JSON; English has 4 or more, so this errs on the dear side
MAX_TOKENS = 300  # of an answer; the estimate takes each to be that long
MORE_TOKENS = 1200  # for an answer that was cut off, asked for once, directly
BATCH_REQUESTS, BATCH_BYTES = 10_000, 100_000_000  # of one batch; the API takes more of both
GIVE_UP = 3  # direct requests that failed one after the other: the rest would too


@dataclass(frozen=True)
class Estimate:
    """What :meth:`Annotator.annotate` would ask and pay for; an upper bound but for replies that
    are cut off, for which ``max_cost_usd`` is what bounds."""

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
    """Labels items with a Claude model, or from what it answered before.

    Args:
        cache: folder of the answers, one file per task, version and model. A row that is deleted
            is asked again.
        max_cost_usd: nothing is asked if the estimate is above it.
        offline: never a request, and no key needed; what is not in the cache is missing.
        client: default: a new one with the key in ``ANTHROPIC_API_KEY``.
        prices: US dollars per million tokens (input, output), for a model not in PRICES.
        batch_from: from this number of requests on, they are sent as batches.

    Raises:
        UserError: values that are out of range.
    """

    model: str = MODEL
    cache: Path | str = "annotations"
    max_cost_usd: float = 1.0
    offline: bool = False
    client: anthropic.Anthropic | None = field(default=None, repr=False)
    prices: tuple[float, float] | None = None
    batch_from: int = 50
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_cost_usd) and self.max_cost_usd >= 0):
            raise UserError(f"max_cost_usd is {self.max_cost_usd}; it must be 0 or more")
        if not self.model.strip() or self.batch_from < 1:
            raise UserError("model must be a name, batch_from at least 1")

    def estimate(self, task: Task, items: Iterable[Item]) -> Estimate:
        """What is still to be asked and its cost; needs no key and asks nothing.

        Raises:
            UserError: a malformed item; a model whose prices are not known.
        """
        requests = self._requests(task, items)
        return self._estimate(requests, Cache(self.cache, self.model, task))

    def annotate(self, task: Task, items: Iterable[Item]) -> list[Annotation]:
        """One annotation per item, in their order.

        Raises:
            UserError: before any request: no usable key, a malformed item, a cost above
                ``max_cost_usd``; later: the API refuses the key. What was answered is kept.
        """
        api = None if self.offline else Api(open_client(self.client), self.sleep)
        requests = self._requests(task, items)
        cache = Cache(self.cache, self.model, task)
        if api is None:
            found = cache.read()
            absent = Annotation(None, "not in the cache, and offline")
        else:
            with cache.locked():
                found = _Session(self, task, api, cache).run(dict(requests))
            absent = Annotation(None, "not asked")
        return [found.get(key, absent) for key, _ in requests]

    def _requests(self, task: Task, items: Iterable[Item]) -> list[tuple[str, dict[str, Any]]]:
        """For each item its key, a digest of model, prompt version and text, and its request."""
        pairs = []
        for item in items:
            text = task.message(item)
            identity = json.dumps([self.model, task.name, task.version, text])
            params = {
                "model": self.model,
                "max_tokens": MAX_TOKENS,
                "system": task.system,
                "messages": [{"role": "user", "content": text}],
                "output_config": {"format": {"type": "json_schema", "schema": task.schema}},
            }
            pairs.append((hashlib.sha256(identity.encode()).hexdigest()[:40], params))
        return pairs

    def _estimate(self, requests: list[tuple[str, dict[str, Any]]], cache: Cache) -> Estimate:
        known = {*cache.read(), *(key for batch in cache.batches() for key in batch["keys"])}
        todo = {key: params for key, params in requests if key not in known}
        batch = len(todo) >= self.batch_from
        costs = [self._cost(params, MAX_TOKENS) for params in todo.values()]
        return Estimate(
            items=len(requests),
            known=sum(key in known for key, _ in requests),
            requests=len(todo),
            batch=batch,
            input_tokens=sum(tokens for tokens, _ in costs),
            output_tokens=MAX_TOKENS * len(todo),
            usd=sum(usd for _, usd in costs) * (BATCH_DISCOUNT if batch else 1),
        )

    def _cost(self, params: dict[str, Any], output_tokens: int) -> tuple[int, float]:
        """Input tokens by the rule of BYTES_PER_TOKEN, and US dollars of one direct request."""
        prices = self.prices or PRICES.get(self.model)
        if prices is None:
            raise UserError(
                f"the prices of model {self.model!r} are not known here; give them as "
                f"prices=(input, output), US dollars per million tokens. Known: {', '.join(PRICES)}"
            )
        tokens = math.ceil(_size(params) / BYTES_PER_TOKEN)
        return tokens, (tokens * prices[0] + output_tokens * prices[1]) / 1e6


def _size(params: dict[str, Any]) -> int:
    return len(json.dumps(params, ensure_ascii=False).encode())


@dataclass
class _Session:
    """One call of :meth:`Annotator.annotate` that may ask; it holds the cache's lock."""

    owner: Annotator
    task: Task
    api: Api
    cache: Cache
    left: float = 0.0  # US dollars, for what the estimate does not count

    def run(self, requests: dict[str, dict[str, Any]]) -> dict[str, Annotation]:
        self._find_lost_batches()
        estimate = self.owner._estimate(list(requests.items()), self.cache)
        self.left = self.owner.max_cost_usd - estimate.usd
        if self.left < 0:
            raise UserError(
                f"this would cost up to {estimate.usd:.2f} US dollars ({estimate}), max_cost_usd "
                f"is {self.owner.max_cost_usd:.2f}; nothing was asked"
            )
        found = self.cache.read()
        under_way = [b for b in self.cache.batches() if not requests.keys().isdisjoint(b["keys"])]
        taken = {key for batch in under_way for key in batch["keys"]}
        todo = {k: p for k, p in requests.items() if k not in found and k not in taken}
        for batch in under_way:
            found |= self._collect(batch, requests)
        if estimate.batch:
            for part in _parts(todo):
                found |= self._bulk(part)
        else:
            found |= self._direct(todo)
        return found

    def _direct(self, todo: dict[str, dict[str, Any]]) -> dict[str, Annotation]:
        found: dict[str, Annotation] = {}
        failures = 0
        for key, params in todo.items():
            if failures == GIVE_UP:
                found[key] = Annotation(None, f"not asked: {GIVE_UP} requests in a row failed")
                continue
            try:
                found[key] = self._answer(params)
            except Failed as failed:
                found[key] = Annotation(None, str(failed))
                failures += 1
            else:
                self.cache.save(key, found[key])
                failures = 0
        return found

    def _answer(self, params: dict[str, Any]) -> Annotation:
        answer = self._create(params)
        return self._once_more(params) if answer.cut else answer

    def _create(self, params: dict[str, Any]) -> Annotation:
        reply = self.api.create(params, lambda: self._afford(params))
        return self._without_key(read_message(self.task, reply))

    def _without_key(self, answer: Annotation) -> Annotation:
        return replace(answer, reason=self.api.without_key(answer.reason)[:200])

    def _once_more(self, params: dict[str, Any]) -> Annotation:
        """Ask for an answer that was cut off with more tokens, if the money allows it."""
        params = {**params, "max_tokens": MORE_TOKENS}
        if not self._afford(params):
            return Annotation(None, "cut off by max_tokens; no money left to ask once more")
        return self._create(params)

    def _afford(self, params: dict[str, Any]) -> bool:
        cost = self.owner._cost(params, params["max_tokens"])[1]
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def _bulk(self, todo: dict[str, dict[str, Any]]) -> dict[str, Annotation]:
        # on disk before it is asked for: if the answer is lost, the batch can still be found
        batch = {"id": None, "created": time.time(), "keys": list(todo)}
        self.cache.put(batch)
        try:
            requests = [{"custom_id": key, "params": params} for key, params in todo.items()]
            batch["id"] = self.api.create_batch(requests)
        except Failed as failed:
            if failed.perhaps_done:
                reason = f"it is not known whether the batch was created, call again: {failed}"
            else:
                reason = str(failed)
                self.cache.drop(batch)
            return dict.fromkeys(todo, Annotation(None, reason))
        except UserError:
            self.cache.drop(batch)
            raise
        self.cache.put(batch)
        print(f"{len(todo)} items in batch {batch['id']}; safe to interrupt", file=sys.stderr)
        return self._collect(batch, todo)

    def _collect(
        self, batch: dict[str, Any], requests: dict[str, dict[str, Any]]
    ) -> dict[str, Annotation]:
        """Wait for a batch and save its answers; ``requests`` are those wanted now."""
        wanted = [key for key in batch["keys"] if key in requests]
        try:
            lines = self.api.batch_lines(batch["id"])
        except Failed as failed:
            if failed.status == 404:  # deleted or too old; the next call asks again
                self.cache.drop(batch)
            return dict.fromkeys(wanted, Annotation(None, f"batch {batch['id']}: {failed}"))
        known, open_keys = self.cache.read(), set(batch["keys"])
        open_keys -= known.keys()
        found: dict[str, Annotation] = {}
        for line in lines:
            key = getattr(line, "custom_id", None)
            if key not in open_keys or key in found:
                continue
            answer, answered = read_line(self.task, line)
            answer = self._without_key(answer)
            if answer.cut and key in requests:
                try:
                    answer = self._once_more(requests[key])
                except Failed as failed:
                    answer, answered = Annotation(None, str(failed)), False
            if answered:
                self.cache.save(key, answer)
            found[key] = answer
        self.cache.drop(batch)
        lost = Annotation(None, "not among the batch's results")
        return {key: found.get(key, known.get(key, lost)) for key in wanted}

    def _find_lost_batches(self) -> None:
        """Give a batch whose creation was interrupted its id, or forget it if there is none."""
        known = [batch["id"] for batch in self.cache.batches()]
        for batch in self.cache.batches():
            if batch["id"] is None:
                size = len(batch["keys"])
                batch["id"] = self.api.find_batch(size, batch["created"], known)
                self.cache.drop(batch) if batch["id"] is None else self.cache.put(batch)


def _parts(todo: dict[str, dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """Parts that fit into one batch each."""
    part: dict[str, dict[str, Any]] = {}
    size = 0
    for key, params in todo.items():
        if part and (len(part) == BATCH_REQUESTS or size + _size(params) > BATCH_BYTES):
            yield part
            part, size = {}, 0
        part[key] = params
        size += _size(params)
    if part:
        yield part
