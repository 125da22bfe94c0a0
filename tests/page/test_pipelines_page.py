"""The view of pipelines, by the status files that a run of them leaves."""

from pathlib import Path

import pytest

from odradek.page.settings import PageSettings
from odradek.pipelines.config import AnyPipeline, load_file
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.files.sink_files import lock_checkpoint
from odradek.pipelines.progress import Figures
from odradek.pipelines.status import State, Status, write_status
from odradek.runtime import system_runtime
from tests.page.visitor import visiting

pytestmark = pytest.mark.asyncio


async def test_without_files_the_view_says_how_to_name_them() -> None:
    async with visiting() as visitor:
        answer = await visitor.get("/pipelines")
    assert "odradek page --pipelines DIR" in answer.text


def prepare(folder: Path) -> AnyPipeline:
    """Write the file and the status of a pipeline whose process has ended, and a wrong file; return the pipeline."""
    file = folder / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    pipeline = load_file(file).pipeline
    Path(pipeline.checkpoint).mkdir(parents=True)
    figures = Figures(
        records_in=12_345, bad_rows=7, bad_row_reason="<b>not a number</b>", rows_per_second=998.7, lag=41
    )
    status = Status(
        name="copy", kind="mirror", state=State.RUNNING, figures=figures, spark_page="http://127.0.0.1:4040"
    )
    write_status(system_runtime().disk, pipeline, status)
    (folder / "wrong.toml").write_text("kind = ")
    return pipeline


async def test_pipelines_are_shown_with_their_figures_and_a_wrong_file_with_its_reason(tmp_path: Path) -> None:
    prepare(tmp_path)
    async with visiting(PageSettings(pipelines=(tmp_path, tmp_path / "gone.toml"))) as visitor:
        answer = await visitor.get("/pipelines")
    assert answer.status == 200
    assert 'tag bad">killed</span>' in answer.text  # no process holds the lock
    assert "4040" not in answer.text  # Spark's page has ended with it
    assert [text in answer.text for text in ("12,345", ">999<", ">41<", ">7<")] == [True] * 4
    assert "&lt;b&gt;not a number" in answer.text
    assert "wrong.toml: not TOML" in answer.text
    assert "gone.toml: No such file" in answer.text


async def test_a_running_pipeline_links_to_the_page_of_its_spark(tmp_path: Path) -> None:
    lock = lock_checkpoint(system_runtime().disk, prepare(tmp_path).checkpoint)
    async with visiting(PageSettings(pipelines=(tmp_path,))) as visitor:
        answer = await visitor.get("/pipelines")
    lock.release()
    assert '<a href="http://127.0.0.1:4040"' in answer.text
