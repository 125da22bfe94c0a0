"""Spark's own Kafka connector for the JVM, `spark-sql-kafka-0-10`, as a peer of the Spark data source."""

from pathlib import Path
from typing import Final

from bench.peers.maven import fetch_jars

_POM: Final = Path(__file__).resolve().parent / "spark" / "pom.xml"


def connector_jars() -> list[Path]:
    """Return the jars of the connector and its dependencies, in the versions of `bench/peers/spark/pom.xml`.

    Raise `UnavailableError` without Java or Maven, or if Maven can't reach a registry.
    """
    return sorted(fetch_jars("spark-connector", _POM).glob("*.jar"))
