"""The clients without asyncio, for scripts, notebooks and threads: same names, same arguments, same results.

    with Producer("localhost:9092") as producer:
        print(producer.send("greetings", b"hello").result().offset)
    with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        for record in consumer: ...

Here, a coroutine of `odradek.clients` is a method that blocks, an asynchronous iterator is an iterator, and a future is
one of `concurrent.futures`. All clients of a process share one event loop in one thread (`loop_thread`), so they also
work while another loop runs. Any thread may call them. Ctrl-C cancels the call that it interrupts. `__init__.pyi` has
the types; `tests/clients/blocking_stubs.py` generates it.
"""

from typing import Any

from odradek.clients.blocking.blocking_classes import blocking_class

_NAMES = ("Admin", "Consumer", "Producer", "SimpleConsumer", "ZookeeperConsumer")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek import clients

    value = globals()[name] = blocking_class(getattr(clients, name))
    return value


__all__ = ["Admin", "Consumer", "Producer", "SimpleConsumer", "ZookeeperConsumer"]
