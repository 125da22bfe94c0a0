"""A fetch session sends what changed, and starts again after anything that went wrong (KIP-227, M12)."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients.fetch import FetchPosition
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.messages.fetch import FetchedPartition, FetchedTopic, FetchResponse
from odradek.protocol.messages.fetch_session import FetchRequest, FetchSessionHandler

Handler = FetchSessionHandler[FetchPosition]

ID = uuid.UUID(int=1)
OTHER_ID = uuid.UUID(int=2)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def at(offset: int, topic_id: uuid.UUID | None = ID) -> FetchPosition:
    return FetchPosition(offset, 1_000, 0, topic_id)


def response(
    session_id: int, *numbers: int, code: ErrorCode = ErrorCode.none, topic_id: uuid.UUID = ID
) -> FetchResponse:
    topics = [FetchedTopic(None, topic_id, [FetchedPartition(number) for number in numbers])] if numbers else []
    return FetchResponse(0, code.value, session_id, topics, [])


def opened(*partitions: TopicPartition) -> Handler:
    """A handler whose session 7 has these partitions, at offset 0."""
    handler = Handler()
    wanted = {each: at(0) for each in partitions}
    handler.build(wanted)
    handler.handle_response(response(7, *(each.partition for each in partitions)), wanted)
    return handler


def test_the_first_request_has_all_partitions_and_opens_a_session() -> None:
    request = Handler().build({T0: at(0), T1: at(5)})
    assert request == FetchRequest(positions={T0: at(0), T1: at(5)}, session_id=0, session_epoch=0)


def test_a_later_request_has_only_changed_new_and_forgotten_partitions() -> None:
    handler = opened(T0, T1)
    wanted = {T0: at(3), T2: at(0)}
    request = handler.build(wanted)
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert request.positions == {T0: at(3), T2: at(0)}
    assert request.forgotten == {T1: ID}
    handler.handle_response(response(7), wanted)
    request = handler.build(wanted)
    assert (request.session_epoch, request.positions, request.forgotten) == (2, {}, {})


def test_a_topic_that_was_created_again_replaces_its_old_id() -> None:
    handler = opened(T0)
    request = handler.build({T0: at(0, OTHER_ID)})
    assert request.positions == {T0: at(0, OTHER_ID)}
    assert request.forgotten == {T0: ID}
    assert handler.handle_response(response(7, 0, topic_id=OTHER_ID), request.positions) == {T0: FetchedPartition(0)}


def test_a_request_with_names_instead_of_ids_closes_the_session_and_opens_another() -> None:
    handler = opened(T0)
    request = handler.build({T0: at(0), T1: at(0, None)}, uses_topic_ids=False)
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert request.positions == {T0: at(0), T1: at(0, None)}


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.fetch_session_id_not_found, 0),
        (ErrorCode.invalid_fetch_session_epoch, 7),
        (ErrorCode.fetch_session_topic_id_error, 7),
    ],
)
def test_after_an_error_a_full_request_closes_the_session_that_the_broker_may_have(
    code: ErrorCode, session_id: int
) -> None:
    handler = opened(T0, T1)
    handler.build({T0: at(0), T1: at(1)})
    with pytest.raises(KafkaError, match=code.name.upper()):
        handler.handle_response(response(0, code=code), {})
    request = handler.build({T0: at(0), T1: at(1)})
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert request.positions == {T0: at(0), T1: at(1)}


def test_after_a_lost_response_the_next_request_is_full() -> None:
    handler = opened(T0)
    handler.build({T0: at(1)})
    handler.handle_error()
    request = handler.build({T0: at(1)})
    assert (request.session_id, request.session_epoch, request.positions) == (7, 0, {T0: at(1)})


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_response_without_a_session_is_followed_by_a_full_request(epoch: int) -> None:
    handler = opened(T0) if epoch else Handler()
    assert handler.build({T0: at(1)}).session_epoch == epoch
    assert handler.handle_response(response(0, 0), {T0: at(1)}) == {T0: FetchedPartition(0)}
    request = handler.build({T0: at(1)})
    assert (request.session_id, request.session_epoch, request.positions) == (0, 0, {T0: at(1)})


def test_partitions_that_were_not_requested_are_ignored_and_end_the_session() -> None:
    handler = opened(T0)
    handler.build({T0: at(0)})
    assert handler.handle_response(response(7, 0, 2), {T0: at(0)}) == {T0: FetchedPartition(0)}
    assert handler.build({T0: at(0)}).session_epoch == 0


def test_a_request_may_follow_before_the_response_of_the_one_before_it() -> None:
    handler = opened(T0)
    first, second = handler.build({T0: at(0)}), handler.build({T0: at(0), T1: at(0)})
    assert (first.session_epoch, second.session_epoch, second.positions) == (1, 2, {T1: at(0)})
    assert handler.handle_response(response(7), {T0: at(0)}) == {}
    assert handler.handle_response(response(7, 1), {T0: at(0), T1: at(0)}) == {T1: FetchedPartition(1)}
    assert handler.build({T0: at(0), T1: at(0)}).session_epoch == 3


def test_the_epoch_after_the_last_is_one() -> None:
    handler = opened(T0)
    handler.epoch = 2**31 - 1
    handler.build({T0: at(0)})
    assert handler.epoch == 1


Steps = Sequence[tuple[dict[TopicPartition, FetchPosition], bool, bool]]
PARTITIONS = st.dictionaries(
    st.sampled_from([T0, T1, T2]), st.builds(at, st.integers(0, 2), st.sampled_from([ID, OTHER_ID])), min_size=1
)


@given(st.lists(st.tuples(PARTITIONS, st.booleans(), st.booleans()), max_size=12))
def test_a_broker_that_applies_the_requests_fetches_what_is_wanted(steps: Steps) -> None:
    """Whichever requests and responses are lost."""
    handler = Handler()
    session: dict[tuple[uuid.UUID | None, int], FetchPosition] | None = None
    epoch = 0
    for wanted, request_arrives, response_arrives in steps:
        request = handler.build(wanted)
        code = ErrorCode.none
        if request_arrives:
            if request.session_epoch == 0:
                session, epoch = {}, 1
            elif session is None or request.session_epoch != epoch:
                code = ErrorCode.invalid_fetch_session_epoch
            else:
                epoch += 1
            if code == ErrorCode.none:
                assert session is not None
                session |= {(each.topic_id, key.partition): each for key, each in request.positions.items()}
                for key, topic_id in request.forgotten.items():
                    del session[topic_id, key.partition]
                assert session == {(each.topic_id, key.partition): each for key, each in wanted.items()}
        if not (request_arrives and response_arrives):
            handler.handle_error()
        elif code == ErrorCode.none:
            handler.handle_response(response(7), wanted)
        else:
            with pytest.raises(KafkaError):
                handler.handle_response(response(0, code=code), wanted)
