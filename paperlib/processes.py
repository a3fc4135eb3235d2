"""How processes end: whoever asks, they clean up, and nothing that they started lives on.

1. In a command, SIGTERM (a job scheduler, a container, CI), SIGHUP (a closed terminal) and SIGINT
   (Ctrl-C) raise one KeyboardInterrupt, so that every ``finally`` on the way does its work.
2. Who starts processes stops them in a ``finally`` (:func:`stop_all`).
3. A child whose parent was killed, or interrupted just before it could note the child, ends by
   itself: :func:`end_with_parent` for notebooks, a pipe for the jobs of a grid.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

PARENT = "PAPERLIB_PARENT"  # in the environment of a process that is to end with its parent
ENDING_SECONDS = 60  # a process that was told to end is gone by then


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


def end_with_parent() -> None:
    """Where the environment names a parent, end as by SIGTERM once that is no longer ours."""
    parent = int(os.environ.pop(PARENT, 0))  # it is no matter of our own children

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    if parent:
        threading.Thread(target=watch, daemon=True).start()


def stop_all(processes: Sequence[subprocess.Popen], grace_seconds: float = 5.0) -> None:
    """Ask the processes to end, kill those that do not, and close what they were held by."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace_seconds
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            pipe.close()
