"""Rollouts labelled by an LLM: every label is paid for once, kept on disk, and never made up.

    annotator = Annotator(cache="annotations", max_cost_usd=2)
    print(annotator.estimate(ERROR_CATEGORY, items))  # a task of annotate_prompts
    labels = annotator.annotate(ERROR_CATEGORY, items)

Many items go as Message Batches, which cost half and may take up to a day, few as direct requests.
A process may be killed at any point: what was answered is on disk, and a batch under way is found
again by the next call. An item without a valid answer is missing, with the reason.
"""

import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic

from paperlib.errors import UserError
from paperlib.evaluation.annotate_prompts import PRICES, Annotation, Cache, Item, Task

BATCH_DISCOUNT = 0.5
BATCH_REQUESTS = 500  # of one batch
POLL_SECONDS = 30.0  # between two looks at a batch
BYTES_PER_TOKEN = 3.0  # of a request as JSON; English has 4 or more, so this errs on the dear side
MAX_TOKENS = 600  # of an answer; the estimate takes each to be that long
RETRIES = 6  # by the SDK, which waits up to 8 seconds in between, or as long as retry-after says
GIVE_UP = 3  # direct requests that failed one after the other: the rest would too


@dataclass(frozen=True)
class Estimate:
    """What :meth:`Annotator.annotate` would ask and pay for: an upper bound, but for answers that
    are lost on their way, so that the SDK asks again."""

    keys: list[str]  # of the items
    todo: dict[str, dict[str, Any]]  # requests, by key; equal items are asked once
    batch: bool
    input_tokens: int
    output_tokens: int
    usd: float

    def __str__(self) -> str:
        known = sum(key not in self.todo for key in self.keys)  # on disk or under way in a batch
        how = "in batches" if self.batch else "one by one"
        return (
            f"{len(self.keys)} items, {known} known; {len(self.todo)} requests {how}, at most "
            f"{self.input_tokens:,} + {self.output_tokens:,} tokens, {self.usd:.2f} US dollars"
        )


@dataclass
class Annotator:
    """Labels items with a Claude model, or from what it answered before."""

    model: str = "claude-haiku-4-5"
    cache: Path | str = "annotations"  # folder of the answers
    max_cost_usd: float = 1.0  # nothing is asked if the estimate is above it
    offline: bool = False  # never a request, no key needed; what is not in the cache is missing
    prices: tuple[float, float] | None = None  # as in PRICES, for another model
    batch_from: int = 50  # from this number of requests on, they are sent as batches

    def estimate(self, task: Task, items: Iterable[Item]) -> Estimate:
        """What is neither on disk nor under way, and what it would cost; asks nothing."""
        requests = [self._request(task, item) for item in items]
        cache = Cache(self.cache, self.model, task)
        known = {*cache.read(), *(key for batch in cache.batches() for key in batch["keys"])}
        todo = {key: request for key, request in requests if key not in known}
        prices = self.prices or PRICES.get(self.model)
        if todo and prices is None and not self.offline:
            raise UserError(
                f"the prices of model {self.model!r} are not known here; give them as "
                f"prices=(input, output), US dollars per million tokens. Known: {', '.join(PRICES)}"
            )
        dollars_in, dollars_out = prices or (0.0, 0.0)
        batch = len(todo) >= self.batch_from
        sizes = [len(json.dumps(r, ensure_ascii=False).encode()) for r in todo.values()]
        tokens = sum(math.ceil(size / BYTES_PER_TOKEN) for size in sizes)
        answers = MAX_TOKENS * len(todo)
        usd = (tokens * dollars_in + answers * dollars_out) / 1e6
        return Estimate(
            keys=[key for key, _ in requests], todo=todo, batch=batch, input_tokens=tokens,
            output_tokens=answers, usd=usd * BATCH_DISCOUNT if batch else usd,
        )  # fmt: skip

    def _request(self, task: Task, item: Item) -> tuple[str, dict[str, Any]]:
        """An item's key, a digest of model, prompt version and text, and its request."""
        text = task.message(item)
        identity = json.dumps([self.model, task.name, task.version, text])
        return hashlib.sha256(identity.encode()).hexdigest()[:40], {
            "model": self.model, "max_tokens": MAX_TOKENS, "system": task.system,
            "messages": [{"role": "user", "content": text}],
            "output_config": {"format": {"type": "json_schema", "schema": task.schema}},
        }

    def annotate(self, task: Task, items: Iterable[Item]) -> list[Annotation]:
        """One annotation per item, in their order."""
        items, cache = list(items), Cache(self.cache, self.model, task)
        if self.offline:
            keys, missing = self.estimate(task, items).keys, {}
        else:
            api = Api(task, open_client(), cache)
            with cache.locked():  # two processes never pay for the same item
                estimate = self.estimate(task, items)
                if not estimate.usd <= self.max_cost_usd:  # nor is NaN a limit
                    raise UserError(
                        f"this would cost up to {estimate.usd:.2f} US dollars ({estimate}), "
                        f"max_cost_usd is {self.max_cost_usd:.2f}; nothing was asked"
                    )
                keys, missing = estimate.keys, api.run(estimate)
        found, offline = cache.read(), "not in the cache, and offline"
        return [found.get(key) or Annotation(None, missing.get(key, offline)) for key in keys]


def open_client() -> anthropic.Anthropic:
    """A client with the key of the environment; what cannot be a key is refused."""
    key = os.environ.get("ANTHROPIC_API_KEY", "")
    if not re.fullmatch(r"[!-~]+", key):
        raise UserError(
            "the API key is not set, is blank, or holds spaces, line breaks or the like; put it "
            "into the environment variable ANTHROPIC_API_KEY, or annotate offline (offline=True), "
            "from a cache and without a key"
        )
    return anthropic.Anthropic(api_key=key, timeout=120.0, max_retries=RETRIES)


class Failed(Exception):
    """A request that brought nothing: a reason for people, and the HTTP status or 0."""


@dataclass
class Api:
    """Asks, and saves what is answered; the caller holds the cache's lock. What comes back are the
    reasons of items that stay unanswered, by key."""

    task: Task
    client: anthropic.Anthropic
    cache: Cache

    def run(self, estimate: Estimate) -> dict[str, str]:
        """Ask what is to be asked, and wait for all batches that hold one of the items."""
        missing = self._send(estimate.todo) if estimate.batch else self._ask(estimate.todo)
        for batch in self.cache.batches():
            if not set(estimate.keys).isdisjoint(batch["keys"]):
                missing |= self._collect(batch["id"], batch["keys"])
        return missing

    def _ask(self, requests: dict[str, dict[str, Any]]) -> dict[str, str]:
        """One by one."""
        reason = f"not asked: {GIVE_UP} requests in a row failed"
        missing, failures = dict.fromkeys(requests, reason), 0
        for key, request in requests.items():
            try:
                reply = self._call("message", self.client.messages.create, **request)
                self.cache.save(key, self._read(reply))
                failures = 0
            except Failed as failed:
                missing[key], failures = failed.args[0], failures + 1
                if failures == GIVE_UP:
                    break
        return missing

    def _send(self, requests: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Create batches; :meth:`_collect` brings their answers, in this process or another."""
        missing: dict[str, str] = {}
        batches = self.client.with_options(max_retries=0).messages.batches  # never paid for twice
        for start in range(0, len(requests), BATCH_REQUESTS):
            keys = list(requests)[start : start + BATCH_REQUESTS]
            part = [{"custom_id": key, "params": requests[key]} for key in keys]
            try:
                batch = self._call("message_batch", batches.create, requests=part)
            except Failed as failed:
                reason = f"no id of a batch came back, calling again creates one: {failed.args[0]}"
                missing |= dict.fromkeys(keys, reason)
                continue
            self.cache.set_batches([*self.cache.batches(), {"id": batch.id, "keys": keys}])
            print(f"{len(keys)} items in batch {batch.id}; safe to interrupt", file=sys.stderr)
        return missing

    def _collect(self, name: str, keys: list[str]) -> dict[str, str]:
        """Wait for a batch, which ends by itself after 24 hours, and save its answers."""
        batches = self.client.messages.batches
        try:
            while self._call("message_batch", batches.retrieve, name).processing_status != "ended":
                time.sleep(POLL_SECONDS)
            lines = self._call(None, lambda: list(batches.results(name)))
            missing = dict.fromkeys(keys, "not among the batch's results")
        except Failed as failed:
            reason, status = failed.args
            lines, missing = [], dict.fromkeys(keys, f"batch {name}: {reason}")
            if status != 404:  # else it is deleted or too old: the next call asks again
                return missing
        for key, result in ((line.custom_id, line.result) for line in lines):
            if key in missing and result.type == "succeeded":
                self.cache.save(key, self._read(result.message))
            elif key in missing:
                error = getattr(result, "error", "")
                missing[key] = self._clean(f"the batch says {result.type!r} {error!r}")
        self.cache.set_batches([b for b in self.cache.batches() if b["id"] != name])
        return missing

    def _call(self, kind: str | None, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What the SDK returns, of type ``kind``; a key that is refused is the user's to mend."""
        try:
            reply = call(*args, **options)
            if kind is None or getattr(reply, "type", None) == kind:
                return reply
            reason, status = f"the body is no {kind} but {reply!r}", 200  # a proxy's page
        except Exception as error:  # the SDK lets its transport's errors out of some calls
            reason, status = f"{type(error).__name__}: {error}", getattr(error, "status_code", 0)
        reason = self._clean(reason)  # and no error in its context, which may quote the key
        if status in (401, 403):
            raise UserError(
                f"the API refuses the key in ANTHROPIC_API_KEY ({reason}); check it and what it "
                "may do"
            )
        raise Failed(reason, status)

    def _read(self, message: Any) -> Annotation:
        """What a reply says; a thinking block may come before its text."""
        try:
            if message.stop_reason not in ("end_turn", "stop_sequence"):
                raise ValueError(f"the model stopped with {message.stop_reason!r}")
            texts = [block.text for block in message.content if block.type == "text"]
            value, why = self.task.parse("".join(texts))
        except ValueError as error:
            return Annotation(None, self._clean(str(error)))
        return Annotation(value, why=why)

    def _clean(self, text: str) -> str:
        """What a server said, which may quote the request, in one short line without the key."""
        return " ".join(text.replace(self.client.api_key, "***").split())[:200]
