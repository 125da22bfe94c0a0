"""Odradek: a Kafka cluster to `pip install`, and a Spark pipeline over it that needs no JAR.

The rooms and their floors are drawn in `docs/architecture.md`; import-linter holds them. Importing this package
imports nothing else: a user takes `odradek.clients`, `odradek.testing` or `odradek.assignors`.
"""

__version__ = "0.1.0"
