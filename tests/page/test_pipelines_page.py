"""The view of pipelines, by the status files that a run of them leaves."""

from html import unescape
from pathlib import Path

import pytest

from odradek.clients import Admin
from odradek.page.settings import PageSettings
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.config.parsing import load_file
from odradek.pipelines.config.pipelines import AnyPipeline
from odradek.pipelines.files.sink_files import lock_checkpoint
from odradek.pipelines.progress import Figures
from odradek.pipelines.status import State, Status, write_status
from odradek.runtime import system_runtime
from odradek.testing import Cluster
from tests.page.members import only_member, reading
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


# ---- The view What-if ------------------------------------------------------------------------------------------------


async def test_a_groups_strategies_are_compared_and_changes_move_partitions(kafka: Cluster) -> None:
    kafka.create_topic("supposed", partitions=4)
    settings = PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})
    async with visiting(settings) as visitor, reading(kafka, "supposed", "supposers"):
        member = await only_member(kafka, "supposers")
        start = "/group/what-if?id=supposers"
        now = await visitor.get(start)
        added = await visitor.get(f"{start}&add_members=1&strategy=cooperative-sticky")
        grown = await visitor.get(f"{start}&partitions=supposed=3")
        alone = await visitor.get(f"{start}&remove={member}")
        index = await visitor.get("/what-if?q=supposers")
    assert now.status == 200
    assert "0 partitions move." in now.text
    assert "will pause" not in now.text
    assert "will pause" in added.text
    assert "<svg" in now.text
    assert "?id=supposers&add_members=1" in unescape(now.text)
    assert "2 partitions move." in added.text
    assert "range becomes cooperative-sticky" in added.text
    assert "3 partitions new." in grown.text
    assert (alone.status, "no member is left" in alone.text) == (400, True)
    assert "/group/what-if?id=supposers" in index.text


@pytest.mark.parametrize("change", ["strategy=os:system", "add_members=10001", "partitions=t=10001", "partitions=t"])
async def test_a_wrong_change_is_refused_without_a_cluster(change: str) -> None:
    async with visiting() as visitor:
        answer = await visitor.get(f"/group/what-if?id=g&{change}")
    assert answer.status == 400


async def test_a_group_without_members_is_a_sentence(kafka: Cluster) -> None:
    kafka.create_topic("memberless")
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.alter_group_offsets("memberless", {("memberless", 0): 0})
    async with visiting(PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})) as visitor:
        answer = await visitor.get("/group/what-if?id=memberless")
    assert (answer.status, "has no members" in answer.text) == (400, True)
