"""What a local Spark is told, and how Ctrl-C waits for it."""

import os
import signal
import threading

import pytest

from odradek.spark.session import deferred_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_it_is_asked_for(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    steps = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts() as check:
        check()
        os.kill(os.getpid(), number)
        steps.append("a call into the JVM ends undisturbed")
        check()
        steps.append("never")
    assert steps == ["a call into the JVM ends undisturbed"]
    assert signal.getsignal(number) is before


def test_other_threads_are_not_asked() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with deferred_interrupts() as check:
            check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
