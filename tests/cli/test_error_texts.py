"""Error codes as users see them: Kafka's name, and a sentence on what happened and what to do."""

import pytest

from odradek.model import ErrorCode, KafkaError, explained

ACTIONS = {
    ErrorCode.not_leader_or_follower: "try again",
    ErrorCode.not_enough_replicas: "partitions describe --under-replicated",
    ErrorCode.topic_authorization_failed: "administrator",
    ErrorCode.group_id_not_found: "odradek groups list",
}


@pytest.mark.parametrize("code", ACTIONS)
def test_an_error_without_a_message_says_what_to_do(code: ErrorCode) -> None:
    text = str(KafkaError(code))
    assert text == explained(code)
    assert text.startswith(f"{code.name.upper()}: ")
    assert ACTIONS[code] in text


@pytest.mark.parametrize("code", [each for each in ErrorCode if each is not ErrorCode.none])
def test_a_code_is_kafkas_name_and_one_sentence_that_fits_a_line(code: ErrorCode) -> None:
    name, _, sentence = explained(code).partition(": ")
    assert name == code.name.upper()
    assert sentence
    assert not sentence.endswith(".")
    assert len(sentence) < 180


def test_the_reason_of_a_broker_is_preferred_to_the_sentence() -> None:
    assert explained(ErrorCode.invalid_record, "record 3 has no key") == "INVALID_RECORD: record 3 has no key"
