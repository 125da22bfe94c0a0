"""The server of a page."""

import asyncio
import subprocess
import sys

import pytest

from odradek.page import server
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
    page = PageServer(PageApp(PageSettings(), runtime, (view,)), runtime)
    await page.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    writer.write(b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await waits.wait()
    await page.close()
    await reader.read()
    writer.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def opened(*writes: bytes) -> tuple[PageServer, list[asyncio.StreamReader], list[asyncio.StreamWriter]]:
    """Return a page, and connections to it, each of which has sent some bytes."""
    runtime = system_runtime()
    page = PageServer(PageApp(PageSettings(), runtime, ()), runtime)
    await page.open("127.0.0.1", 0)
    pairs = [await asyncio.open_connection("127.0.0.1", page.port) for _ in writes]
    for (_, writer), data in zip(pairs, writes, strict=True):
        writer.write(data)
    return page, [reader for reader, _ in pairs], [writer for _, writer in pairs]


HEAD = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"


@pytest.mark.asyncio
async def test_half_a_request_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_WHOLE_REQUEST_S", 0.05)
    page, readers, writers = await opened(b"", b"GET / HTTP/1.1\r\nHo", HEAD + b"Content-Length: 100\r\n\r\ncsrf=")
    async with asyncio.timeout(60):
        assert [await each.read() for each in readers[:2]] == [b"", b""]
        await readers[2].read()
    for each in writers:
        each.close()
    await page.close()


@pytest.mark.asyncio
async def test_one_address_leaves_connections_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_OF_ADDRESS", 2)
    page, readers, writers = await opened(b"", b"", b"")
    async with asyncio.timeout(60):
        assert await readers[2].read() == b""
    assert not readers[0].at_eof()
    for each in writers:
        each.close()
    await page.close()


@pytest.mark.asyncio
async def test_a_form_without_a_session_is_as_short_as_a_login() -> None:
    page, (reader,), (writer,) = await opened(HEAD + b"Content-Length: 100000\r\n\r\n" + b"a" * 100_000)
    async with asyncio.timeout(60):
        assert b"413" in await reader.readline()
    writer.close()
    await page.close()


def test_the_page_imports_neither_brokers_nor_columns() -> None:
    heavy = ["broker", "log", "testing", "lab.player.playing"]
    script = (
        "import sys, odradek.page.app, odradek.page.server\n"
        f"print(*sys.modules.keys() & {{*(f'odradek.{{each}}' for each in {heavy}), 'numpy', 'pyarrow'}})"
    )
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "\n"
