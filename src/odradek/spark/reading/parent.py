"""Ends the process of a stream's reader when its parent, Spark's JVM, has ended."""

import functools
import os
import signal
import threading
import time
from typing import Final

_POLL_SECONDS: Final = 1.0


@functools.cache
def end_with_parent() -> None:
    """Send this process SIGTERM once its parent has ended; the first call starts a thread for that.

    Spark does not stop a reader whose query ends in `prepareForTriggerAvailableNow`. It would otherwise notice only
    after its call, which waits for brokers that are gone until `kafka.default.api.timeout.ms`.
    """
    threading.Thread(target=_watch, args=(os.getppid(),), name="odradek-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
