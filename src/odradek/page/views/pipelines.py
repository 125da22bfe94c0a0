"""The view of pipelines: what each of the files of `--pipelines` does now."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.model import ConfigurationError, OdradekError
from odradek.page.view import Page, PageRequest, View
from odradek.runtime import Disk


async def pipelines(asked: PageRequest) -> Mapping[str, Any]:
    """Read the files and the state of their pipelines, in a thread."""
    if not asked.settings.pipelines:
        return {"is_given": False, "problems": ()}
    return await asyncio.to_thread(_read, asked.runtime.disk, asked.settings.pipelines)


def _read(disk: Disk, places: Sequence[Path]) -> Mapping[str, Any]:
    # Imported here, because most pages have no pipelines.
    from odradek.pipelines.config.parsing import load_file, toml_files
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
    statuses.sort(key=lambda each: (not each.active, each.name))
    return {"is_given": True, "statuses": statuses, "problems": problems}


VIEW = View(
    title="Pipelines",
    path="/pipelines",
    pages=(Page(path="/pipelines", template="pipelines.html", data=pipelines, live=("state",)),),
)
