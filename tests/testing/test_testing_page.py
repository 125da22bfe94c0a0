"""The examples of docs/testing.md run as they are printed, by pytest, with the fixtures that the package brings."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

PAGE: Final = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES: Final = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "# before" not in block]
SPARK: Final = [block for block in EXAMPLES if "spark" in block]
OTHERS: Final = [block for block in EXAMPLES if "spark" not in block]


def test_the_examples_pass_as_tests(tmp_path: Path):
    for number, example in enumerate(OTHERS):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
    done = subprocess.run(
        [sys.executable, *arguments, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = sum(example.count("\ndef test_") + example.count("\nasync def test_") for example in OTHERS)
    assert f"{written} passed" in done.stdout
    assert written >= 9


def test_every_client_that_the_page_names_has_an_example():
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        assert any(re.search(rf"^from {client} import", example, re.MULTILINE) for example in OTHERS), client
    assert len(SPARK) == 1


def test_every_call_of_the_cluster_is_on_the_page():
    from odradek.testing import Cluster

    calls = [name for name in vars(Cluster) if not name.startswith("_") and name not in ("start", "stop")]
    assert len(calls) >= 15
    assert [name for name in calls if f"`{name}" not in PAGE and f", `{name}" not in PAGE] == []
