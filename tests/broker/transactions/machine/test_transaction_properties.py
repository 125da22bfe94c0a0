"""Whatever clients, markers and coordinators do: a transaction has one end, and no two producers share an epoch."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.coordinators.machine import Producer
from odradek.broker.transactions.machine.messages import (
    AddPartitionsRequest,
    EndTransactionRequest,
    InitProducerIdReply,
    InitProducerIdRequest,
    MarkersWrittenRequest,
    SendMarkers,
)
from odradek.broker.transactions.machine.transaction import TransactionState
from odradek.broker.transactions.machine.transaction_machine import TransactionSettings
from odradek.model import TopicPartition
from tests.broker.transactions.machine.transaction_log import ID, TransactionLog

STEPS = st.one_of(
    st.tuples(st.just("init"), st.booleans()),
    st.tuples(st.just("add"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 3)),
    st.sampled_from([("markers", 0), ("commits", 0), ("holds", 0), ("dies", 0), ("time", 0)]),
)


@given(st.lists(STEPS, max_size=40))
def test_a_transaction_has_one_end_and_no_two_producers_share_an_epoch(steps: list[tuple[str, int]]) -> None:
    ends: dict[Producer, bool] = {}
    clients: list[Producer] = []

    def told(to: object, value: object) -> None:
        if isinstance(value, SendMarkers):
            assert ends.setdefault(value.producer, value.is_commit) == value.is_commit
        elif isinstance(value, InitProducerIdReply):
            assert value.producer not in clients
            assert not clients or value.producer.epoch > clients[-1].epoch
            clients.append(value.producer)
        elif isinstance(value, Producer):
            clients.append(value)

    log = TransactionLog(told, TransactionSettings(has_two_phase_commit=True))
    for now_s, (what, number) in enumerate(steps):
        log.pass_time(log.now_ms + (100_000 if what == "time" else now_s))
        if what == "init":
            log.handle(InitProducerIdRequest(timeout_ms=60_000, keep_prepared=bool(number)))
        elif what in {"add", "commit", "abort"} and clients:
            client = clients[max(len(clients) - 1 - number, 0)]
            partitions = frozenset({TopicPartition("t", number)})
            log.handle(
                AddPartitionsRequest(producer=client, partitions=partitions, transaction_version=2)
                if what == "add"
                else EndTransactionRequest(producer=client, is_commit=what == "commit", transaction_version=2)
            )
        elif what == "markers" and log.markers is not None:
            log.handle(MarkersWrittenRequest(producer=log.markers.producer))
        elif what == "commits":
            log.commits_at_once = True
            log.commit()
        elif what == "holds":
            log.commits_at_once = False
        elif what == "dies":
            log.lose()
    log.commits_at_once = True
    log.commit()
    metadata = log.machine.transactions.get(ID)
    if metadata is not None and metadata.state.is_prepared:
        assert log.markers is not None
        log.handle(MarkersWrittenRequest(producer=log.markers.producer))
        assert log.machine.transactions[ID].state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
