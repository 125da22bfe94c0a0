"""M2 to M7, X3. The view to learn: lessons, and the generations played on the same clicks."""

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape

import pytest
import pytest_asyncio

from odradek.lab.lessons import LESSONS
from odradek.lab.player import parse_script
from odradek.model import UnavailableError
from odradek.page import playing
from odradek.page.playing import Plays
from odradek.page.settings import PageSettings
from tests.page.visitor import Answer, Visitor, visiting

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]
SCRIPT = "0:join,3:join,8:end"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visitor() -> AsyncIterator[Visitor]:
    """A visitor of one page, because its first play starts processes."""
    async with visiting(PageSettings(client={"bootstrap_servers": "127.0.0.1:1"})) as visitor:
        yield visitor


async def played(visitor: Visitor, address: str) -> Answer:
    """Return a page with all its plays, as page.js requests it until they are made."""
    for _ in range(1_000):
        answer = await visitor.get(address)
        if "data-pending" not in answer.text:
            return answer
    raise AssertionError(f"{address} is being played for 500 s")


def links(answer: Answer) -> dict[str, str]:
    """Return the addresses of the links by their texts."""
    found = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>([^<]*)</a>', answer.text)
    return {unescape(text.strip()): unescape(address) for address, text in found}


async def test_every_lesson_has_an_address_its_sentences_and_its_drawings(visitor: Visitor) -> None:
    for lesson in LESSONS:
        answer = await visitor.get(f"/learn/{lesson.section}/{lesson.key}")
        assert answer.status == 200
        assert lesson.title in unescape(answer.text)
        assert answer.text.count("<svg") == len(lesson.assigned) + len(lesson.placed)
        assert ("Play it in all generations" in answer.text) == (lesson.played is not None)
        assert "style=" not in answer.text
    listed = links(await visitor.get("/learn"))
    assert {lesson.title for lesson in LESSONS} <= listed.keys()


async def test_the_four_groups_are_side_by_side_at_the_moment_of_the_address(visitor: Visitor) -> None:
    answer = await played(visitor, f"/learn/play?script={SCRIPT}&at=2000")
    assert answer.status == 200
    assert answer.text.count("<article>") == 4
    assert answer.text.count('<th scope="row">member-1</th><td>0, 1, 2, 3, 4, 5</td>') == 4
    assert "member-2 starts" not in answer.text
    later = await played(visitor, links(answer)["Next change »"])
    assert later.text.count("<span>member-2 starts</span>") == 4
    end = await played(visitor, links(answer)["End"])
    assert end.text.count('<th scope="row">not read</th><td>none</td>') == 4


async def test_the_next_change_is_a_click_or_a_moment_with_other_readers(visitor: Visitor) -> None:
    answer = await played(visitor, f"/learn/play?script={SCRIPT}&at=0")
    assert "<td>0, 1, 2, 3, 4, 5</td></tr>\n<tr><th" not in answer.text
    following = await played(visitor, links(answer)["Next change »"])
    assert ">member-1</th>" in following.text


async def test_steps_are_links_forward_and_back_without_a_script_in_the_browser(visitor: Visitor) -> None:
    answer = await played(visitor, f"/learn/play?script={SCRIPT}&at=0")
    assert "Start" not in links(answer)
    following = await played(visitor, links(answer)["Step ›"])
    assert links(following)["‹ Step back"].endswith("&at=0")


async def test_a_click_is_added_at_the_moment_and_removed_again(visitor: Visitor) -> None:
    answer = await played(visitor, f"/learn/play?script={SCRIPT}&at=3000")
    offered = links(answer)
    assert offered["member-2 dies"].partition("?")[2].startswith("script=0:join,3:join,3:die-2,15:end&")
    assert "broker-1 comes back" not in offered
    removing = re.findall(r'href="([^"]*)" aria-label="Remove: a member joins"', answer.text)
    assert unescape(removing[1]) == "/learn/play?script=0:join,8:end&partitions=6&seed=0&at=3000"


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/learn/play?script=0:jump", "is not a click"),
        ("/learn/play?script=%3Cscript%3E", "&lt;script&gt;"),
        ("/learn/play?script=0:join&partitions=99", "partitions is &#39;99&#39;, not a number from 1 to 12"),
        ("/learn/3/nothing", "there is no lesson nothing"),
        ("/learn/x/range", "there is no lesson range"),
    ],
)
async def test_an_address_that_is_wrong_gets_a_sentence(visitor: Visitor, address: str, sentence: str) -> None:
    answer = await visitor.get(address)
    assert answer.status == 400
    assert sentence in answer.text
    assert "<script>" not in answer.text


async def test_processes_wait_for_the_first_play_and_make_the_next_ones(visitor: Visitor) -> None:
    await visitor.get("/learn")
    waiting = set(visitor.app.plays._idle)
    assert len(waiting) == 2
    assert (await played(visitor, "/learn/play?script=0:join,4:end")).status == 200
    assert set(visitor.app.plays._idle) == waiting
    for process in waiting:
        process.kill()
        await process.wait()
    assert "its process has ended" in (await played(visitor, "/learn/play?script=0:join,5:end")).text
    assert (await played(visitor, "/learn/play?script=0:join,5:end")).status == 200


async def test_the_page_comes_at_once_and_the_plays_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "_FIRST_ANSWER_S", 0.0)
    async with visiting() as visitor:
        answer = await visitor.get(f"/learn/play?script={SCRIPT}&at=3000")
        assert answer.status == 200
        assert answer.text.count("Is being played…") == 4
        assert links(answer)["Next change »"].endswith("at=8000")
        assert '<noscript><meta http-equiv="refresh" content="1"></noscript>' in answer.text
        await asyncio.gather(*visitor.app.plays._plays.values())
        answer = await played(visitor, f"/learn/play?script={SCRIPT}&at=3000")
        assert answer.text.count("<span>member-2 starts</span>") == 4
        assert "What the whole play costs" in answer.text
        assert answer.text.count('class="picture" role="img" aria-label="') == 4  # beside each other
        assert "http-equiv" not in answer.text


async def test_more_plays_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "_FIRST_ANSWER_S", 0.0)
    monkeypatch.setattr(Plays, "_answer", lambda _plays, _asked: asyncio.Event().wait())
    plays, script = Plays(), parse_script("0:join,1:end")
    for seed in range(10):
        assert await plays.plays(script, partitions=1, seed=seed) == [None] * 4
    with pytest.raises(UnavailableError, match="too many plays"):
        await plays.plays(script, partitions=1, seed=99)
    await plays.close()


async def test_without_another_process_lessons_are_shown_and_a_play_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    async with visiting() as visitor:
        assert (await visitor.get("/learn")).status == 200
        answer = await played(visitor, f"/learn/play?script={SCRIPT}")
    assert (answer.status, "cannot be started: no memory" in answer.text) == (503, True)
