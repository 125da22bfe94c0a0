"""A session remembers what its principal may do, and forgets it when the rules or the principal change."""

from conformance.interop.test_versions import TOPIC
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.security import AclOperation, ResourceType
from odradek.simulation.world import World
from tests.broker.security.test_admission import BOB, Setting, codes
from tests.world.scenes import played


@played
async def test_a_session_remembers_what_it_may_read_until_the_rules_change_and_no_refusal(world: World) -> None:
    setting = await Setting(world).begin()
    client, asked = setting.client, setting.rules.asked
    assert (await client.fetch(TOPIC, 0)).error_code == 0
    count = len(asked)
    client.send_fetch([(TOPIC, 0, 0), ("public", 0, 0)])
    assert not any(codes(await client.fetch_response()))
    assert {each.resource_pattern.name for each in asked[count:]} == {TOPIC, "public"}, "one name is new"
    count = len(asked)
    for topic in (TOPIC, "public"):
        assert (await client.fetch(topic, 0)).error_code == 0
    assert len(asked) == count
    setting.rules.deny(AclOperation.READ, ResourceType.TOPIC, TOPIC)
    for _ in range(2):
        assert (await client.fetch(TOPIC, 0)).error_code == ErrorCode.topic_authorization_failed
        assert (await client.fetch("public", 0)).error_code == 0
    assert [each.resource_pattern.name for each in asked[count:]] == [TOPIC, "public", TOPIC]
    setting.rules.allow_all()
    assert (await client.fetch(TOPIC, 0)).error_code == 0


@played
async def test_a_session_remembers_a_limited_number_of_names_of_one_principal_operation_and_api(world: World) -> None:
    setting = await Setting(world).begin()
    client = setting.client
    for start in range(0, 3000, 100):
        client.send_fetch([(f"t{number}", 0, 0) for number in range(start, start + 100)])
        await client.fetch_response()
    ((_, session),) = setting.broker.server._connections.items()
    assert len(session.allowed[ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC]) == 1000
    assert (await client.fetch(TOPIC, 0)).error_code == 0
    setting.rules._denied.append((BOB, AclOperation.READ, ResourceType.TOPIC, "t1"))
    setting.be(BOB)
    assert (await client.fetch("t1", 0)).error_code == ErrorCode.topic_authorization_failed
