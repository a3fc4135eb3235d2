"""Asking Claude, and what it answered: each answer on disk as it comes, no reply taken on trust."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from paperlib.errors import UserError
from paperlib.evaluation.annotate_prompts import Task
from paperlib.files import read_json, read_jsonl, write_json_atomic

if TYPE_CHECKING:
    import anthropic

RETRIES = 6  # by the SDK, which waits up to 8 seconds in between, or as long as retry-after says
GIVE_UP = 3  # direct requests that failed one after the other: the rest would too
BATCH_REQUESTS = 500  # of one batch
POLL_SECONDS = 30.0  # between two looks at a batch


@dataclass(frozen=True)
class Annotation:
    """What is known of an item."""

    value: str | int | None  # None: missing
    reason: str = ""  # of a missing one
    why: str = ""  # the model's own sentence


class Failed(Exception):
    """A request that brought nothing: a reason for people, and the HTTP status or 0."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


class Cache:
    """``<task>-v<version>-<model>.jsonl``, one answer a line, and the batches under way."""

    def __init__(self, folder: Path | str, model: str, task: Task) -> None:
        stem = re.sub(r"[^\w.-]", "_", f"{task.name}-v{task.version}-{model}")
        self.path = Path(folder) / f"{stem}.jsonl"
        self._batches = Path(folder) / f"{stem}.batches.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two processes never pay for the same item. Half a line, left by a kill, is cut off."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            data = self.path.read_bytes() if self.path.exists() else b""
            if not data.endswith(b"\n") and data:
                os.truncate(self.path, data.rfind(b"\n") + 1)
            yield

    def read(self) -> dict[str, Annotation]:
        """All answers there are, by key."""
        return {
            row["key"]: Annotation(row["value"], row.get("reason", ""), row.get("why", ""))
            for row in read_jsonl(self.path)
        }

    def save(self, key: str, answer: Annotation) -> None:
        """Append one answer, at once and to the disk."""
        with open(self.path, "a", encoding="ascii", newline="\n") as file:
            file.write(json.dumps({"key": key, **asdict(answer)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def batches(self) -> list[dict[str, Any]]:
        """The batches under way: ``id`` and ``keys`` of each."""
        found = read_json(self._batches) if self._batches.exists() else []
        return [batch for batch in found if batch["id"]]

    def set_batches(self, batches: list[dict[str, Any]]) -> None:
        write_json_atomic(self._batches, batches)


def open_client(client: "anthropic.Anthropic | None" = None) -> "anthropic.Anthropic":
    """``client``, or a new one with the key of the environment; what cannot be a key (blank, with
    a space or line break in it) is refused."""
    import anthropic

    key = os.environ.get("ANTHROPIC_API_KEY") if client is None else client.api_key
    signs_in = client and (client.auth_token or getattr(client, "credentials", None))
    if not signs_in and not re.fullmatch(r"[!-~]+", key or ""):
        what = "is not set" if not key else "is blank or holds spaces, line breaks or the like"
        raise UserError(
            f"the API key {what}; put it into the environment variable ANTHROPIC_API_KEY, "
            "or annotate offline (offline=True), from a cache and without a key"
        )
    client = client or anthropic.Anthropic(api_key=key, timeout=120.0)
    return client.with_options(max_retries=RETRIES)


@dataclass
class Api:
    """Asks, and saves what is answered; the caller holds the cache's lock. What comes back are the
    reasons of items that stay unanswered, by key."""

    task: Task
    client: "anthropic.Anthropic"
    cache: Cache

    def ask(self, requests: dict[str, dict[str, Any]]) -> dict[str, str]:
        """One by one."""
        missing, failures = {}, 0
        for key, request in requests.items():
            if failures == GIVE_UP:
                missing[key] = f"not asked: {GIVE_UP} requests in a row failed"
                continue
            try:
                reply = self._call("message", lambda r=request: self.client.messages.create(**r))
            except Failed as failed:
                missing[key], failures = str(failed), failures + 1
                continue
            self.cache.save(key, self._read(reply))
            failures = 0
        return missing

    def send(self, requests: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Create batches; :meth:`collect` brings their answers, in this process or another."""
        missing: dict[str, str] = {}
        batches = self.client.with_options(max_retries=0).messages.batches  # never paid for twice
        for start in range(0, len(requests), BATCH_REQUESTS):
            keys = list(requests)[start : start + BATCH_REQUESTS]
            part = [{"custom_id": key, "params": requests[key]} for key in keys]
            try:
                batch = self._call("message_batch", lambda p=part: batches.create(requests=p))
            except Failed as failed:
                reason = f"no id of a batch came back, calling again creates one: {failed}"
                missing |= dict.fromkeys(keys, reason)
                continue
            self.cache.set_batches([*self.cache.batches(), {"id": batch.id, "keys": keys}])
            print(f"{len(keys)} items in batch {batch.id}; safe to interrupt", file=sys.stderr)
        return missing

    def collect(self, batch: dict[str, Any]) -> dict[str, str]:
        """Wait for a batch, which ends by itself after 24 hours, and save its answers."""
        name, batches = batch["id"], self.client.messages.batches

        try:
            while self._call(
                "message_batch", lambda: batches.retrieve(name)
            ).processing_status != "ended":
                time.sleep(POLL_SECONDS)
            lines = self._call(None, lambda: list(batches.results(name)))
            results = {line.custom_id: line.result for line in lines}
            reason = "not among the batch's results"
        except Failed as failed:
            results, reason = {}, f"batch {name}: {failed}"
            if failed.status != 404:  # deleted or too old: the next call asks again
                return dict.fromkeys(batch["keys"], reason)
        missing, known = dict.fromkeys(batch["keys"], reason), self.cache.read()
        for key in (key for key in missing if key in results and key not in known):
            if results[key].type == "succeeded":
                self.cache.save(key, self._read(results[key].message))
            else:
                error = getattr(results[key], "error", "")
                missing[key] = self._clean(f"the batch says {results[key].type!r} {error!r}")
        self.cache.set_batches([b for b in self.cache.batches() if b["id"] != name])
        return missing

    def _call(self, kind: str | None, call: Callable[[], Any]) -> Any:
        """What the SDK returns, of type ``kind``; a key that is refused is the user's to mend."""
        try:
            reply = call()
            if kind is None or getattr(reply, "type", None) == kind:
                return reply
            reason, status = f"the body is no {kind} but {reply!r}", 200  # a proxy's page
        except Exception as error:  # the SDK lets its transport's errors out of some calls
            reason, status = f"{type(error).__name__}: {error}", getattr(error, "status_code", 0)
        reason = self._clean(f"status {status}: {reason}" if status else reason)
        if status in (401, 403):
            raise UserError(
                f"the API refuses the key in ANTHROPIC_API_KEY ({reason}); check it and what it "
                "may do"
            )
        raise Failed(reason, status)

    def _read(self, message: Any) -> Annotation:
        """What a reply says; a thinking block may come before its text."""
        stop = message.stop_reason
        if stop not in ("end_turn", "stop_sequence"):
            return Annotation(None, self._clean(f"the model stopped with {stop!r}"))
        try:
            texts = [block.text for block in message.content if block.type == "text"]
            value, why = self.task.parse("".join(texts))
        except ValueError as error:
            return Annotation(None, self._clean(str(error)))
        return Annotation(value, why=why)

    def _clean(self, text: str) -> str:
        """What a server said, which may quote the request, in one short line without the key."""
        for secret in (self.client.api_key, self.client.auth_token):
            text = text.replace(secret, "***") if secret else text
        return " ".join(text.split())[:200]
