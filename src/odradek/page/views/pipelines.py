"""The view of pipelines: what each of the files of `--pipelines` does now."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from odradek.model import ConfigurationError, OdradekError
from odradek.page.view import Page, PageRequest, View
from odradek.runtime import Disk

if TYPE_CHECKING:
    from odradek.pipelines.status import Status


class PipelinesPage(Struct, frozen=True, kw_only=True):
    """The data of the view; `problems` are sentences on files that cannot be read."""

    is_given: bool
    """Whether the page has files to show."""
    statuses: "Sequence[Status]" = ()
    problems: Sequence[str] = ()


async def pipelines(asked: PageRequest) -> PipelinesPage:
    """Read the files and the state of their pipelines, in a thread."""
    if not asked.settings.pipelines:
        return PipelinesPage(is_given=False)
    return await asyncio.to_thread(_read, asked.runtime.disk, asked.settings.pipelines)


def _read(disk: Disk, places: Sequence[Path]) -> PipelinesPage:
    # Imported here, because most pages have no pipelines.
    from odradek.pipelines.config import load_file, toml_files
    from odradek.pipelines.status import read_status

    statuses, problems = [], []
    for place in places:
        try:
            files = toml_files(place)
        except ConfigurationError as error:
            problems.append(str(error))
            continue
        for file in files:
            try:
                statuses.append(read_status(disk, load_file(file).pipeline))
            except (OSError, OdradekError) as error:
                problems.append(str(error))
    return PipelinesPage(
        is_given=True, statuses=sorted(statuses, key=lambda each: (not each.active, each.name)), problems=problems
    )


VIEW = View(
    title="Pipelines",
    path="/pipelines",
    pages=(Page(path="/pipelines", template="pipelines.html", data=pipelines, live=("state",)),),
)
