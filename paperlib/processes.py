"""How processes end: whoever asks, they clean up, and nothing that they started lives on.

1. In a command, SIGTERM (a job scheduler, a container, CI), SIGHUP (a closed terminal) and SIGINT
   (Ctrl-C) raise one KeyboardInterrupt, so that every ``finally`` on the way does its work.
2. :func:`run_all` stops what it started. A child whose parent was killed, or interrupted just
   before it could note the child, ends by itself: its stdin is closed then.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

HELD = "PAPERLIB_HELD"  # in the environment of a process that is to end with its stdin
ENDING_SECONDS = 60  # a process that was told to end is gone by then
POLL_SECONDS = 0.2


def end_by_signals() -> None:
    """Have this process's main thread end by KeyboardInterrupt, with the signal's number.

    Signals that come after the first are ignored: nothing interrupts the cleaning up, but for an
    alarm that ends the process if it hangs. What the caller ignores (nohup) stays ignored.
    """
    asked = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    caught = [number for number in asked if signal.getsignal(number) != signal.SIG_IGN]

    def end(number: int, frame: object) -> None:
        for other in caught:
            signal.signal(other, lambda *_: None)  # children would inherit SIG_IGN
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(ENDING_SECONDS)
        raise KeyboardInterrupt(number)

    for number in caught:
        signal.signal(number, end)


def start(command: Sequence[str], environment: Mapping[str, str], output: Any) -> subprocess.Popen:
    """A process that ends with this one, and so do those of a launcher that it may be."""
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=output,
        env={**os.environ, **environment, HELD: "1"},
    )  # fmt: skip


def end_with_stdin() -> None:
    """In a process of :func:`start`: end as by SIGTERM once that one's parent is gone."""

    def watch() -> None:
        os.read(0, 1)  # nothing ever comes
        os.kill(os.getpid(), signal.SIGTERM)

    if os.environ.pop(HELD, None):  # it is no matter of our own children
        threading.Thread(target=watch, daemon=True).start()


def run_all(
    works: Iterable[Any], places: Iterable[Any], begin: Callable[[Any, Any], subprocess.Popen],
    ended: Callable[[Any, int], None], look: Callable[[list], None] = lambda _: None,
    grace_seconds: float = 5.0,
) -> list[Any]:
    """Begin a process for each of ``works``, one at a time in each of ``places``; the works whose
    process failed. ``ended`` is told a work and its status; ``look`` often sees what runs."""
    waiting, free, running, failed = list(works), list(places), [], []
    try:
        while waiting or running:
            while waiting and free:
                work, place = waiting.pop(0), free.pop(0)
                running.append((work, place, begin(work, place)))
            look([work for work, *_ in running])
            time.sleep(POLL_SECONDS)
            for one in [one for one in running if one[2].poll() is not None]:
                running.remove(one)
                work, place, process = one
                process.stdin.close()
                free.append(place)
                failed += [work] if process.returncode else []
                ended(work, process.returncode)
    finally:  # after Ctrl-C too: what is written so far resumes
        _stop([process for *_, process in running], grace_seconds)
    return failed


def _stop(processes: Sequence[subprocess.Popen], grace_seconds: float) -> None:
    """Ask the processes to end, and kill those that do not."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace_seconds
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdin.close()
