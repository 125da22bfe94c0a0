"""Requests of several groups in virtual time: they wait for all their groups' commits at the same time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.groups.machine.messages import CommitRequest
from odradek.model import ErrorCode, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.protocol.api import ApiKey
from odradek.protocol.internal_records.group_records import OffsetCommitValue

Play = Callable[..., None]
GROUPS = tuple({coordinator_partition(name, 2): name for name in ("a", "b", "c", "d")}.values())
"""One group of each partition."""


@pytest.mark.parametrize(
    ("api", "message"),
    [
        (ApiKey.DESCRIBE_GROUPS, {"groups": GROUPS, "include_authorized_operations": False}),
        (
            ApiKey.OFFSET_FETCH,
            {"groups": [{"group_id": each, "topics": None} for each in GROUPS], "require_stable": False},
        ),
    ],
    ids=["DescribeGroups", "OffsetFetch"],
)
def test_groups_whose_records_are_not_committed_are_awaited_at_the_same_time(
    play: Play, monkeypatch: pytest.MonkeyPatch, api: ApiKey, message: dict[str, Any]
) -> None:
    """M8."""

    async def scenario(world: Any) -> None:
        client = await world.client()
        await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["a"]})
        groups = world.broker.groups
        for name in GROUPS:
            monkeypatch.setattr(type(groups.context(name).partition), "when_reached", lambda *_, **__: None)
            request = CommitRequest(values={TopicPartition("t", 0): OffsetCommitValue(offset=1, commit_timestamp=0)})
            groups.submit(name, request).cancel()
        started = asyncio.get_running_loop().time()
        answer = await client.ask(api, message, 5 if api is ApiKey.DESCRIBE_GROUPS else 9)
        assert [each.error_code for each in answer.groups] == [ErrorCode.coordinator_not_available] * 2
        assert 4.9 < asyncio.get_running_loop().time() - started < 5.5

    assert len(GROUPS) == 2
    play(scenario)
