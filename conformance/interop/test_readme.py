"""The statements of the README are true; `tests/docs` runs its examples."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.parametrize("package", ["confluent-kafka", "kafka-python", "aiokafka", "pyspark"])
def test_the_table_of_clients_has_the_versions_that_are_tested(package: str):
    assert re.search(rf"\| {package} [^|]*\| {re.escape(version(package))} ", README)


def test_the_page_is_short():
    assert len(README.splitlines()) <= 130
