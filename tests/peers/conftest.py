"""Kafka and our broker for all tests that ask both, started when the first of them comes."""

from collections.abc import Iterator

import pytest
from twins import Twins


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Both, over empty directories; every test takes topics of its own."""
    both = Twins(tmp_path_factory.mktemp("twins"))
    both.start()
    yield both
    both.stop()
    errors = both.ours.errors.read_text()
    assert "Traceback" not in errors, errors
