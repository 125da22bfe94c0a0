"""M2, M4. The example of three keys and two groups, against a broker: `examples/keys_to_members.py`."""

import asyncio
from typing import Any

from examples.keys_to_members import main


def test_a_group_of_one_receives_all_keys_and_of_three_members_each_receives_one(kafka: Any) -> None:
    """SPEC 4: broadcast between groups, unicast within one."""
    received = asyncio.run(main(kafka.bootstrap_servers, "keys-to-members"))
    assert [sorted(keys) for keys in received["single"]] == [["1", "2", "3"]]
    assert sorted(received["shared"]) == [["1"], ["2"], ["3"]]
