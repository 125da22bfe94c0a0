"""PySpark's daemon that starts Python workers, with quick TCP acknowledgements (`spark.python.daemon.module`).

Spark sends a task in several small packets, and waits for the acknowledgement of each before it sends the next. Linux
delays acknowledgements by 40 ms.
"""

import socket
from contextlib import suppress
from typing import Any

from pyspark import daemon

_work = daemon.worker


def worker(sock: Any, authenticated: Any) -> int:
    """Run one task, as PySpark's function of this name does. The kernel resets TCP_QUICKACK, so each task sets it."""
    if hasattr(socket, "TCP_QUICKACK"):
        # Unix sockets have no such option, and a sandbox may refuse it.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    try:
        return int(_work(sock, authenticated))
    except BrokenPipeError:
        return 1  # Spark has read as many rows as a LIMIT needs; the daemon would print a traceback


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
