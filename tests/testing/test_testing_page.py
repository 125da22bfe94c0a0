"""docs/testing.md has every client and every call; `tests/docs` runs its examples."""

import re
from pathlib import Path
from typing import Final

from tests.docs.fenced_blocks import examples

PAGE: Final = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES: Final = [example.text for example in examples("testing.md", "python") if example.is_run]


def test_every_client_that_the_page_names_has_an_example():
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        assert any(re.search(rf"^from {client} import", example, re.MULTILINE) for example in EXAMPLES), client


def test_every_call_of_the_cluster_is_on_the_page():
    from odradek.testing import Cluster

    calls = [name for name in vars(Cluster) if not name.startswith("_") and name not in ("start", "stop")]
    assert len(calls) >= 15
    assert [name for name in calls if f"`{name}" not in PAGE and f", `{name}" not in PAGE] == []
