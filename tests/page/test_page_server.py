"""The server of a page."""

import asyncio
import subprocess
import sys

import pytest

from odradek.page.app import PageApp
from odradek.page.server import PageServer
from odradek.page.settings import PageSettings
from odradek.page.view import Page, PageRequest, View
from odradek.runtime import system_runtime


@pytest.mark.asyncio
async def test_closing_ends_a_request_that_waits_without_a_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    waits = asyncio.Event()

    async def wait(_asked: PageRequest) -> None:
        waits.set()
        await asyncio.Event().wait()

    view = View(title="Slow", path="/slow", pages=(Page(path="/slow", template="problem.html", data=wait),))
    runtime = system_runtime()
    server = PageServer(PageApp(PageSettings(), runtime, (view,)), runtime)
    await server.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await waits.wait()
    await server.close()
    await reader.read()
    writer.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_page_imports_neither_brokers_nor_columns() -> None:
    heavy = ["broker", "log", "testing", "lab.player.playing"]
    script = (
        "import sys, odradek.page.app, odradek.page.server\n"
        f"print(*sys.modules.keys() & {{*(f'odradek.{{each}}' for each in {heavy}), 'numpy', 'numba', 'pyarrow'}})"
    )
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "\n"
