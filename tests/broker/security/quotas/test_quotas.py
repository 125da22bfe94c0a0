"""Which quota applies to a client, what a rate is, and how long a client above its quota waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.security.quotas.connection_quotas import LONGEST_DELAY_S, ConnectionQuotas
from odradek.broker.security.quotas.rates import Rate, SimpleRate, TokenBucket
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import parse_ip_counts
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.security.quotas import (
    DEFAULT,
    QuotaEntity,
    applicable,
    check_entity,
    check_key,
    ip_limit,
    limits_by_key,
    quota_text,
)

ALICE, APP = "alice", "app"
LEVELS = [
    (QuotaEntity(user=ALICE, client_id=APP), (ALICE, APP)),
    (QuotaEntity(user=ALICE, client_id=DEFAULT), (ALICE, APP)),
    (QuotaEntity(user=ALICE), (ALICE, None)),
    (QuotaEntity(user=DEFAULT, client_id=APP), (ALICE, APP)),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), (ALICE, APP)),
    (QuotaEntity(user=DEFAULT), (ALICE, None)),
    (QuotaEntity(client_id=APP), (None, APP)),
    (QuotaEntity(client_id=DEFAULT), (None, APP)),
]
"""The precedence of Kafka's ClientQuotaManager, and which clients share the quota."""
STRANGERS = [
    QuotaEntity(user="bob", client_id=APP),
    QuotaEntity(user="bob"),
    QuotaEntity(client_id="other"),
    QuotaEntity(user=ALICE, client_id="other"),
    QuotaEntity(ip=DEFAULT),
]


@given(st.lists(st.sampled_from([entity for entity, _ in LEVELS] + STRANGERS), unique=True))
def test_the_first_entity_in_kafkas_order_that_has_the_key_counts(present: list[QuotaEntity]) -> None:
    limits = {entity: float(number) for number, entity in enumerate(present, 1)}
    expected = next(((limits[entity], shared) for entity, shared in LEVELS if entity in limits), None)
    assert applicable(limits, ALICE, APP) == expected


def test_a_client_without_an_id_has_the_quotas_of_default_clients() -> None:
    limits = {QuotaEntity(user=ALICE, client_id=DEFAULT): 1.0, QuotaEntity(client_id=DEFAULT): 2.0}
    assert applicable(limits, ALICE, "") == (1.0, (ALICE, ""))
    assert applicable(limits, "bob", "") == (2.0, (None, ""))


def test_each_key_is_looked_up_on_its_own() -> None:
    limits = limits_by_key(
        {
            QuotaEntity(user=ALICE): {"producer_byte_rate": "10", "SCRAM-SHA-256": "salt=…"},
            QuotaEntity(client_id=APP): {"producer_byte_rate": "20", "consumer_byte_rate": "30"},
            QuotaEntity(ip="127.0.0.1"): {"connection_creation_rate": "5", "producer_byte_rate": "1"},
            QuotaEntity(ip=DEFAULT): {"connection_creation_rate": "7"},
        }
    )
    assert applicable(limits["producer_byte_rate"], ALICE, APP) == (10.0, (ALICE, None))
    assert applicable(limits["consumer_byte_rate"], ALICE, APP) == (30.0, (None, APP))
    assert applicable(limits["request_percentage"], ALICE, APP) is None
    assert ip_limit(limits["connection_creation_rate"], "127.0.0.1") == 5
    assert ip_limit(limits["connection_creation_rate"], "10.0.0.1") == 7
    assert QuotaEntity(ip="127.0.0.1") not in limits["producer_byte_rate"]


@pytest.mark.parametrize("text", ["", "abc", "0", "-1", "nan", "inf"])
def test_an_invalid_quota_in_the_tree_is_no_quota(text: str) -> None:
    assert not limits_by_key({QuotaEntity(user=ALICE): {"producer_byte_rate": text}})["producer_byte_rate"]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("ip", "10.0.0.1"), ("user", ALICE)],
        [("user", ALICE), ("user", "bob")],
        [("user", "")],
        [("group", "g")],
        [("ip", "localhost")],
        [("ip", "10.0.0.256")],
    ],
)
def test_an_invalid_entity_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(KafkaError) as caught:
        check_entity(parts)
    assert caught.value.code is ErrorCode.invalid_request


def test_an_entity_without_a_name_is_the_default() -> None:
    assert check_entity([("client-id", None), ("user", ALICE)]) == QuotaEntity(user=ALICE, client_id=DEFAULT)
    assert check_entity([("ip", None)]) == QuotaEntity(ip=DEFAULT)
    assert check_entity([("ip", "0:0::1")]) == QuotaEntity(ip="::1")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1.5, 2.0**63])
def test_an_invalid_byte_rate_is_refused(value: float) -> None:
    with pytest.raises(KafkaError):
        quota_text("producer_byte_rate", value)


def test_values_are_written_as_kafka_reads_them() -> None:
    assert quota_text("producer_byte_rate", 1048576.0) == "1048576"
    assert quota_text("request_percentage", 12.5) == "12.5"
    for entity, key in (
        (QuotaEntity(user=ALICE), "connection_creation_rate"),
        (QuotaEntity(ip=DEFAULT), "producer_byte_rate"),
        (QuotaEntity(user=ALICE), "SCRAM-SHA-256"),
    ):
        with pytest.raises(KafkaError):
            check_key(entity, key)


def test_a_rate_within_its_limit_is_not_throttled_and_the_excess_waits_as_long_as_it_takes_at_the_limit() -> None:
    rate = Rate(11, 1.0)
    rate.record(1000, 100.0)
    assert rate.throttle_time_s(100, 100.0) == 0  # 1000 in the ten full samples before
    rate.record(150, 100.5)
    assert rate.throttle_time_s(100, 100.5) == pytest.approx(1.0)  # the window is 10.5 s long
    assert rate.throttle_time_s(100, 101.5) == pytest.approx(1.0)  # and 10.5 s again: a new sample replaces a full one
    assert rate.throttle_time_s(100, 110.6) == pytest.approx(0.9)
    assert not rate.is_idle(110.9)
    assert rate.is_idle(112.6)


def test_a_rate_is_shown_over_the_window_that_its_limit_is_compared_with() -> None:
    rate, bucket = Rate(11, 1.0), TokenBucket(11, 1.0)
    assert rate.per_second(100.0) == 0
    rate.record(1000, 100.0)
    assert rate.per_second(100.0) == 100, "the window has ten full samples at least"
    rate.record(50, 100.5)
    assert rate.per_second(100.5) == 100
    assert rate.throttle_time_s(rate.per_second(100.5), 100.5) == 0
    assert rate.per_second(112.0) == 0
    bucket.record(40, 2, 100.0)
    bucket.record(-10, 2, 100.0)
    assert bucket.rate.per_second(100.0) == 3
    bucket.record(-40, 2, 100.0)
    assert bucket.rate.per_second(100.0) == 0, "tokens of an earlier window may be given back"


@pytest.mark.parametrize("size", [10, 100, 250])
def test_a_client_that_waits_for_each_throttle_time_has_the_rate_of_its_limit(size: float) -> None:
    rate, now_s, sent = Rate(11, 1.0), 50.0, 0.0
    while now_s < 650.0:
        rate.record(size, now_s)
        sent += size
        now_s += rate.throttle_time_s(100, now_s) + 0.001
    assert sent / 600 == pytest.approx(100, rel=0.1)


def test_a_token_bucket_allows_a_burst_and_then_waits_until_the_debt_is_paid() -> None:
    bucket = TokenBucket(11, 1.0)
    assert bucket.throttle_time_s(2, 100.0) == 0
    bucket.record(22, 2, 100.0)
    assert bucket.throttle_time_s(2, 100.0) == 0
    bucket.record(10, 2, 100.0)
    assert bucket.throttle_time_s(2, 100.0) == 5
    assert bucket.throttle_time_s(2, 104.0) == 1
    assert bucket.throttle_time_s(2, 105.0) == 0
    bucket.record(-1000, 2, 105.0)
    bucket.record(22, 2, 105.0)
    assert bucket.throttle_time_s(2, 105.0) == 0, "tokens that are given back do not exceed the burst"
    bucket.record(0.5, 2, 105.0)
    assert bucket.throttle_time_s(2, 105.0) == 0.25


# ---- Connections -----------------------------------------------------------------------------------------------------


def test_clients_are_counted_in_all_and_by_address() -> None:
    quotas = ConnectionQuotas(most_open=100, config=BrokerConfig())
    config = BrokerConfig(
        max_connections=4, max_connections_per_ip=2, max_connections_per_ip_overrides="10.0.0.9:3, [::1]:1,fe80::1:0"
    )
    came = [quotas.admit(config, ip) for ip in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "::1", "::1", "fe80::1")]
    assert [each is None for each in came] == [True, True, False, True, False, False]
    assert "max.connections.per.ip" in str(came[2])
    quotas.dismiss("10.0.0.1")
    assert [quotas.admit(config, "10.0.0.9") is None for _ in range(3)] == [True, True, False], "4 are max.connections"
    quotas.dismiss("::1")
    assert quotas.admit(config, "10.0.0.9") is None


def test_connections_are_limited_by_the_open_files_of_the_system_too() -> None:
    quotas = ConnectionQuotas(most_open=1, config=BrokerConfig())
    assert quotas.admit(BrokerConfig(), "a") is None
    assert "open files" in str(quotas.admit(BrokerConfig(), "b"))


def test_connections_above_the_creation_rate_are_delayed() -> None:
    quotas = ConnectionQuotas(most_open=100, config=BrokerConfig())
    config = BrokerConfig(max_connection_creation_rate=10)
    delays = [quotas.delay_s(config, 50.0) for _ in range(20)]
    assert delays[:10] == pytest.approx([0.0] * 10)
    assert delays[10:] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert quotas.delay_s(config, 60.0) == 0.0
    assert [quotas.delay_s(BrokerConfig(), 60.0) for _ in range(1000)] == [0.0] * 1000


def test_connections_that_are_closed_because_many_wait_do_not_make_later_ones_wait() -> None:
    quotas = ConnectionQuotas(most_open=100, config=BrokerConfig())
    config = BrokerConfig(max_connection_creation_rate=10)
    delays = [quotas.delay_s(config, 50.0) for _ in range(10_000)]
    assert sum(delay <= LONGEST_DELAY_S for delay in delays) in {59, 60}  # by rounding
    assert quotas.delay_s(config, 52.0) == pytest.approx(LONGEST_DELAY_S - 1.9, abs=0.11)


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", "localhost:3", "10.0.0.1:-1", "10.0.0.1:x", ":5"])
def test_overrides_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerConfig.parse({"max.connections.per.ip.overrides": text})
    assert parse_ip_counts("") == {}


def test_a_rate_of_replication_has_no_burst_after_a_pause() -> None:
    """Kafka's `SimpleRate`: the window begins with the first sample, and is never shorter than one."""
    rate = SimpleRate(11, 1.0)
    rate.record(50, 100.0)
    assert rate.per_second(100.0) == 50
    assert rate.throttle_time_s(10, 100.0) == 4.0
    assert rate.throttle_time_s(10, 104.9) == pytest.approx(0.1)
    assert rate.throttle_time_s(10, 105.0) == 0.0
    rate.record(60, 105.0)
    assert rate.per_second(110.0) == 11
    assert rate.per_second(111.0) == 10, "the first sample has expired"
