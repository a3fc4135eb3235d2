"""The Anthropic API as the annotation needs it: bounded patience, and no reply taken on trust.

The SDK's own retries are switched off: it makes two, and would sleep for as long as a
``retry-after`` header says. Errors are told apart by ``anthropic.*`` classes only, since the HTTP
library below the SDK has changed before.
"""

from __future__ import annotations

import datetime
import email.utils
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from paperlib.errors import UserError
from paperlib.evaluation.annotate_prompts import Task

if TYPE_CHECKING:
    import anthropic

T = TypeVar("T")

TRIES = 6  # of one request; with the waits below at most about five minutes
MAX_WAIT = 60.0  # seconds before the next try, whatever a retry-after header asks for
POLL_SECONDS = 30.0  # between two looks at a batch
PATIENCE = 26 * 3600.0  # seconds; a batch ends by itself after 24 hours
_RETRIED = (408, 409, 429)  # and all of 500 and above, 529 (overloaded) too
_REFUSED = (401, 403)  # key, permission: every other request would fail as well
_KEY = re.compile(r"[!-~]+")


class Failed(Exception):
    """A request that brought nothing, after all tries: a reason for people and the last HTTP
    status, 0 for none."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(f"status {status}: {reason}" if status else reason)
        self.status = status

    @property
    def perhaps_done(self) -> bool:
        """Nobody knows whether the API has acted on it; 503 and 529 say it has not."""
        return not self.status or (self.status >= 500 and self.status not in (503, 529))


@dataclass(frozen=True)
class Annotation:
    """``value`` is None if the item is missing; then ``reason`` says why. ``why`` is the model's
    own sentence."""

    value: str | int | None
    reason: str = ""
    why: str = ""
    cut: bool = False  # by max_tokens; more tokens may help


def open_client(client: anthropic.Anthropic | None) -> anthropic.Anthropic:
    """``client``, or a new one with the key of the environment.

    Raises:
        UserError: no key, or one that cannot be a key (blank, with a space or line break in it).
    """
    import anthropic

    key = os.environ.get("ANTHROPIC_API_KEY") if client is None else client.api_key
    if client is not None and (client.auth_token or getattr(client, "credentials", None)):
        return client.with_options(max_retries=0)  # it signs in by other means
    if key is None or not _KEY.fullmatch(key):
        what = "is not set" if not key else "is blank or holds spaces, line breaks or the like"
        raise UserError(
            f"the API key {what}; put it into the environment variable ANTHROPIC_API_KEY, "
            "or annotate offline (offline=True), from a cache and without a key"
        )
    if client is None:
        client = anthropic.Anthropic(api_key=key, timeout=120.0)
    return client.with_options(max_retries=0)


@dataclass
class Api:
    """``sleep`` is called with seconds between two tries and two looks at a batch."""

    client: anthropic.Anthropic
    sleep: Callable[[float], None] = time.sleep

    def persist(self, ask: Callable[[], T], again: Callable[[Failed], bool] | None = None) -> T:
        """``ask()``, tried up to TRIES times with waits of 1, 2, 4, ... seconds or what the
        server asks for, at most MAX_WAIT.

        Args:
            again: asked before each further try whether there shall be one.

        Raises:
            Failed: nothing came of it.
            UserError: the API refuses the key (status 401, 403).
        """
        import anthropic

        for number in range(TRIES):
            asked_for = 0.0
            try:
                return ask()
            except anthropic.APIStatusError as error:
                failed = Failed(self._clean(error), error.status_code)
                asked_for = _retry_after(error.response.headers.get("retry-after"))
            except (anthropic.AnthropicError, ValueError) as error:
                failed = Failed(self._clean(error))  # ValueError: a body the SDK cannot decode
            if failed.status in _REFUSED:
                raise UserError(
                    f"the API refuses the key in ANTHROPIC_API_KEY ({failed}); check it and "
                    "what it may do"
                )
            if 0 < failed.status < 500 and failed.status not in _RETRIED:
                break
            if number == TRIES - 1 or (again and not again(failed)):
                break
            self.sleep(min(max(2.0**number, asked_for), MAX_WAIT))
        raise failed

    def _clean(self, error: Exception) -> str:
        return self.without_key(" ".join(f"{type(error).__name__}: {error}".split()))[:200]

    def without_key(self, text: str) -> str:
        """What a server said, which may quote the request."""
        for secret in (self.client.api_key, self.client.auth_token):
            text = text.replace(secret, "***") if secret else text
        return text

    def create(self, params: dict[str, Any], afford: Callable[[], bool]) -> Any:
        """One message; ``afford`` says whether it may be paid for once more, after a lost
        connection or a garbled body. Raises like :meth:`persist`."""

        def ask() -> Any:
            return _expect(self.client.messages.create(**params), "message")

        return self.persist(ask, lambda failed: bool(failed.status) or afford())

    def create_batch(self, requests: list[dict[str, Any]]) -> str:
        """The id of a new batch. Never asked twice if nobody knows whether it was created."""

        def ask() -> Any:
            return _expect(self.client.messages.batches.create(requests=requests), "message_batch")

        return self.persist(ask, lambda failed: not failed.perhaps_done).id

    def find_batch(self, size: int, since: float, known: Sequence[str]) -> str | None:
        """The newest batch of ``size`` requests created after ``since`` (Unix time, give or take
        ten minutes of clocks that differ) that is not ``known``: one whose id was lost."""
        earliest = datetime.datetime.fromtimestamp(since - 600, datetime.UTC)

        def ask() -> str | None:
            page = self.client.messages.batches.list(limit=100)
            for batch in itertools.islice(_expect(page, None), 100):
                total = sum(v for v in batch.request_counts.to_dict().values())
                if total == size and batch.created_at >= earliest and batch.id not in known:
                    return batch.id
            return None

        return self.persist(ask)

    def batch_lines(self, batch_id: str) -> list[Any]:
        """Wait until the batch has ended; its result lines, in any order.

        Raises:
            Failed: the batch is still in progress after PATIENCE, or its results cannot be read.
        """

        def look() -> Any:
            return _expect(self.client.messages.batches.retrieve(batch_id), "message_batch")

        def read() -> list[Any]:
            import anthropic

            try:
                return list(self.client.messages.batches.results(batch_id))
            except (anthropic.AnthropicError, ValueError):
                raise
            except Exception as error:  # the SDK lets its transport's errors out of this stream
                raise ValueError(f"results cut off ({type(error).__name__})") from None

        waited = 0.0
        while self.persist(look).processing_status != "ended":
            if waited >= PATIENCE:
                raise Failed("the batch is still in progress; call again later")
            self.sleep(POLL_SECONDS)
            waited += POLL_SECONDS
        return self.persist(read)


def _expect(reply: Any, kind: str | None) -> Any:
    """A proxy's page comes back from the SDK as a plain text, an error under status 200 as an
    object of the right class with nothing in it."""
    if isinstance(reply, str | list | None) or (kind and getattr(reply, "type", None) != kind):
        raise ValueError(f"the body is no {kind or 'list'} but {reply!r}")
    return reply


def _retry_after(header: str | None) -> float:
    """Seconds, from a number or an HTTP date; 0 for none or nonsense."""
    try:
        seconds = float(header or 0)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
        except ValueError:
            return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def read_message(task: Task, message: Any) -> Annotation:
    """What a reply says. Why it stopped counts first; then all text blocks, joined (a thinking
    block may come before them)."""
    stop = getattr(message, "stop_reason", None)
    if stop == "max_tokens":
        return Annotation(None, "the answer was cut off by max_tokens", cut=True)
    if stop not in ("end_turn", "stop_sequence"):
        return Annotation(None, f"the model stopped with {stop!r}")
    blocks = getattr(message, "content", None) or []
    texts = [b.text for b in blocks if getattr(b, "type", None) == "text"]
    if not any(isinstance(text, str) and text.strip() for text in texts):
        return Annotation(None, "the answer is empty")
    try:
        value, why = task.parse("".join(texts))
    except ValueError as error:
        return Annotation(None, str(error))
    return Annotation(value, why=why)


def read_line(task: Task, line: Any) -> tuple[Annotation, bool]:
    """A batch line's annotation, and whether it was answered (and billed) at all."""
    result = getattr(line, "result", None)
    kind = getattr(result, "type", None)
    if kind == "succeeded":
        return read_message(task, getattr(result, "message", None)), True
    reason = f"the batch says {kind!r}"
    if kind == "errored":
        error = getattr(getattr(result, "error", None), "error", None)
        reason += f": {getattr(error, 'type', None)}: {getattr(error, 'message', None)}"
    return Annotation(None, reason), False
