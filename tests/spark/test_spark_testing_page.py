"""The Spark example of docs/testing.md, as it is printed."""

from typing import Any

from odradek.testing import Cluster
from tests.docs.fenced_blocks import blocks


def test_the_example_counts_words(kafka: Cluster, spark: Any):
    (example,) = (block for block in blocks("testing.md", "python") if "spark" in block)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/testing.md", "exec"), names)
    names["test_words_are_counted"](kafka, spark)
    assert "assert counts" in example
