"""The Spark example of docs/testing.md, as it is printed."""

import re
from pathlib import Path
from typing import Any, Final

from odradek.testing import Cluster

PAGE: Final = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def test_the_example_counts_words(kafka: Cluster, spark: Any):
    (example,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "spark" in block)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/testing.md", "exec"), names)
    names["test_words_are_counted"](kafka, spark)
    assert "assert counts" in example
