"""Answers that say an error, of every API in every version."""

import uuid
from typing import Any

import pytest

from conformance.interop.test_versions import TOPIC, requests
from odradek.broker.apis import APIS
from odradek.broker.serving.error_responses import error_codes, error_response
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import decode_request, decode_response, encode_request, encode_response

ERROR = ErrorCode.cluster_authorization_failed
TOPIC_ID = uuid.UUID(int=7)


def answer_to(api: ApiKey, version: int, error: ErrorCode = ERROR, **changes: Any) -> Any:
    """The answer as a client decodes it."""
    message = {**requests(TOPIC_ID)[api], **changes}
    request = decode_request(api, version, encode_request(api, version, message))
    answer = error_response(api, version, request, error, "because")
    return decode_response(api, version, encode_response(api, version, answer))


@pytest.mark.parametrize("api", sorted(map(ApiKey, APIS)), ids=lambda api: api.name)
def test_every_version_of_every_api_can_say_that_it_failed(api: ApiKey):
    for version in APIS[api].served:
        request = decode_request(api, version, encode_request(api, version, requests(TOPIC_ID)[api]))
        answer = error_response(api, version, request, ERROR, "because")
        is_without = api is ApiKey.DESCRIBE_LOG_DIRS and version < 3
        assert set(error_codes(api, version, answer)) == (set() if is_without else {ERROR})
        assert not is_without or not answer["results"], "the lack of directories is the error"
        decode_response(api, version, encode_response(api, version, answer))


def test_requests_of_partitions_fail_for_each_partition_by_name():
    (topic,) = answer_to(ApiKey.PRODUCE, 9).responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code) == (TOPIC, 0, ERROR)
    assert (partition.base_offset, partition.error_message) == (-1, "because")
    (topic,) = answer_to(ApiKey.PRODUCE, 13).responses
    assert topic.topic_id == TOPIC_ID
    (topic,) = answer_to(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4).topics
    assert (topic.topic, topic.partitions[0].partition, topic.partitions[0].error_code) == (TOPIC, 0, ERROR)
    (marker,) = answer_to(ApiKey.WRITE_TXN_MARKERS, 1).markers
    (topic,) = marker.topics
    assert (marker.producer_id, topic.name, topic.partitions[0].partition_index) == (1, TOPIC, 0)


def test_a_fetch_fails_per_partition_and_at_the_top_if_the_session_is_to_blame_or_nothing_is_named():
    answer = answer_to(ApiKey.FETCH, 12)
    assert answer.error_code == ErrorCode.none
    (topic,) = answer.responses
    assert (topic.topic, topic.partitions[0].error_code, topic.partitions[0].high_watermark) == (TOPIC, ERROR, -1)
    lost = answer_to(ApiKey.FETCH, 12, ErrorCode.fetch_session_id_not_found)
    assert (lost.error_code, lost.responses) == (ErrorCode.fetch_session_id_not_found, ())
    assert answer_to(ApiKey.FETCH, 12, topics=[]).error_code == ERROR


def test_clients_find_their_entities_and_partitions_in_the_error_and_quotas_are_null():
    (entry,) = answer_to(ApiKey.ALTER_CLIENT_QUOTAS, 1).entries
    assert (entry.error_code, entry.error_message) == (ERROR, "because")
    assert [each.entity_type for each in entry.entity] == ["user"]
    assert answer_to(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1).entries is None
    for version in (0, 2):
        (topic,) = answer_to(ApiKey.ELECT_LEADERS, version).replica_election_results
        (partition,) = topic.partition_result
        assert (topic.topic, partition.partition_id, partition.error_code) == (TOPIC, 0, ERROR)


def test_both_lists_of_users_fail_by_name():
    upsertion = {"name": "b", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    results = answer_to(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, upsertions=[upsertion]).results
    assert [(each.user, each.error_code) for each in results] == [("nobody", ERROR), ("b", ERROR)]


def test_metadata_fails_per_topic_and_names_it():
    for version in (1, 12, 13):
        answer = answer_to(ApiKey.METADATA, version)
        assert [each.error_code for each in answer.topics] == [ERROR]
    assert answer.topics[0].topic_id == TOPIC_ID


def test_a_coordinator_is_refused_per_key_in_the_versions_with_many_keys():
    alone = answer_to(ApiKey.FIND_COORDINATOR, 3)
    assert (alone.error_code, alone.node_id, alone.host, alone.port) == (ERROR, -1, "", -1)
    (one,) = answer_to(ApiKey.FIND_COORDINATOR, 4).coordinators
    assert (one.key, one.error_code, one.error_message) == (TOPIC, ERROR, "because")


def test_the_requested_group_is_the_one_that_fails():
    (group,) = answer_to(ApiKey.OFFSET_FETCH, 8).groups
    assert (group.group_id, group.error_code, group.topics) == (TOPIC, ERROR, ())
    assert answer_to(ApiKey.OFFSET_FETCH, 7).error_code == ERROR
    (group,) = answer_to(ApiKey.DELETE_GROUPS, 2).results
    assert (group.group_id, group.error_code) == ("nobody", ERROR)
    joined = answer_to(ApiKey.JOIN_GROUP, 9)
    assert (joined.error_code, joined.generation_id, joined.members) == (ERROR, -1, ())
