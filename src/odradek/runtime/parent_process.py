"""Ends a worker process when its parent has ended, also by `kill -9`."""

import functools
import os
import signal
import threading
import time
from typing import Final

_POLL_SECONDS: Final = 1.0


@functools.cache
def end_with_parent(parent: int | None = None) -> None:
    """Send this process SIGTERM once its parent has ended; the first call starts a thread for that.

    A worker that waits for a broker, or for its next task, does not notice the end of the parent by itself. `parent` is
    its process id, for a caller whose parent may have ended before this call.
    """
    watched = os.getppid() if parent is None else parent
    threading.Thread(target=_watch, args=(watched,), name="odradek-parent", daemon=True).start()


def leave_interrupts_to_parent() -> None:
    """Ignore SIGINT: Ctrl-C reaches the parent, too, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
