"""One broker: a room for each concept, with its pure machine, the shell that runs it, and what it remembers.

`lifecycle.Broker` creates, starts and stops all parts; `serving` passes requests to `handlers`. docs/architecture.md
has a line for each room.
"""
