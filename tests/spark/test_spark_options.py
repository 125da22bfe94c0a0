"""Options of the data source: the JVM connector's names and defaults, and one sentence for each slip."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from odradek.model import ConfigurationError, OdradekError, TopicPartition
from odradek.spark import settings
from odradek.spark.options import (
    Assign,
    AtTimestamp,
    AtTimestamps,
    Edge,
    GivenOffsets,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    parse_read_options,
    parse_write_options,
)
from odradek.spark.schema import HEADERS, check_sink_schema, check_source_schema
from odradek.spark.settings import ScanSettings, SinkSettings, client_settings
from odradek.spark.source import OdradekDataSource

KINDS = {"BINARY": BinaryType(), "STRING": StringType(), "INT": IntegerType(), "BIGINT": LongType(), "HEADERS": HEADERS}


def columns(text: str) -> StructType:
    """Return the columns of `NAME TYPE, …`."""
    pairs = (each.split() for each in text.split(","))
    return StructType([StructField(name, KINDS[kind]) for name, kind in pairs])


def read(*, streaming: bool = False, **options: str) -> ReadOptions:
    """Options with dots are spelled with double underscores."""
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    given.update({key.replace("__", "."): value for key, value in options.items()})
    return parse_read_options({key: value for key, value in given.items() if value != "-"}, streaming=streaming)


def test_a_batch_starts_at_earliest_and_a_stream_at_latest_by_default() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.starting, batch.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert stream.starting is Edge.LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.strategy == Subscribe(topics=("t",))


def test_keys_are_case_insensitive() -> None:
    options = read(FAILONDATALOSS="FALSE", IncludeHeaders="true", minpartitions="7", STARTINGOFFSETS="Earliest")
    assert (options.fail_on_data_loss, options.include_headers, options.min_partitions) == (False, True, 7)
    assert options.starting is Edge.EARLIEST


def test_topics_are_separated_by_commas_and_named_once() -> None:
    assert read(subscribe=" a , b,a,").strategy == Subscribe(topics=("a", "b"))


def test_a_pattern_matches_whole_names() -> None:
    strategy = read(subscribe="-", subscribePattern="flights-.*").strategy
    assert isinstance(strategy, SubscribePattern)
    assert strategy.matches("flights-2013")
    assert not strategy.matches("old-flights-2013")


def test_assign_names_partitions() -> None:
    strategy = read(subscribe="-", assign='{"b":[2,0],"a":[1]}').strategy
    assert strategy == Assign(partitions=(TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2)))


def test_json_offsets_may_name_an_edge_by_number() -> None:
    starting = read(startingOffsets='{"t":{"0":23,"1":-2}}').starting
    assert starting == GivenOffsets(offsets={TopicPartition("t", 0): 23, TopicPartition("t", 1): Edge.EARLIEST})


def test_a_timestamp_wins_over_timestamps_and_timestamps_over_offsets() -> None:
    by_partition = {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"}
    assert read(**by_partition).starting == AtTimestamps(timestamps_ms={TopicPartition("t", 0): 5})
    assert read(**by_partition, startingTimestamp="9").starting == AtTimestamp(timestamp_ms=9)


def test_kafka_options_pass_through_without_their_prefix() -> None:
    options = read(kafka__fetch__max__bytes="1000", kafka__client__id="x")
    assert options.client == {"fetch.max.bytes": "1000", "client.id": "x"}
    assert options.bootstrap_servers == "localhost:9092"


def test_options_survive_pickling() -> None:
    options = read(startingOffsets='{"t":{"0":23}}', kafka__client__id="x")
    assert pickle.loads(pickle.dumps(options)) == options


def test_options_that_spark_adds_and_those_of_writes_are_ignored() -> None:
    assert read(path="x", checkpointLocation="y", queryName="q", topic="t") == read()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"startingOffsets": "soon"}, "startingOffsets is earliest, latest or JSON"),
        ({"endingOffsets": "soon"}, "endingOffsets is earliest, latest or JSON"),
        ({"kafka.check.crcs": "maybe"}, "check.crcs"),
        ({"consumeMode": "group", "kafka.group.id": "g", "kafka.session.timeout.ms": "x"}, "session.timeout.ms"),
    ],
)
def test_the_columns_of_a_read_need_valid_options(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        OdradekDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | wrong).schema()


def test_an_option_of_batches_or_of_streams_only_is_valid_for_the_columns() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    for only in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}, {"maxOffsetsPerTrigger": "5"}):
        assert OdradekDataSource(servers | {"subscribe": "t"} | only).schema().fieldNames()[0] == "key"
    with pytest.raises(ConfigurationError, match="none is given"):
        OdradekDataSource(servers | {"topic": "t"}).schema()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka__bootstrap__servers": "-"}, "kafka.bootstrap.servers is missing"),
        ({"kafka__bootstrap__servers": "localhost"}, "'localhost', which is not HOST:PORT"),
        ({"subscribe": "-"}, "one of assign, subscribe and subscribePattern says what to read: none is given"),
        ({"subscribePattern": ".*"}, "subscribe and subscribePattern are given"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "a/b"}, "'a/b' contains one or more"),
        ({"subscribe": "-", "subscribePattern": "("}, "subscribePattern is not a regular expression"),
        ({"subscribe": "-", "assign": "t:0"}, "assign is not JSON"),
        ({"subscribe": "-", "assign": '{"t":["0"]}'}, 'assign must look like {"topic":[0,1]}'),
        ({"subscribe": "-", "assign": "{}"}, "assign names no partition"),
        ({"startingOffsets": "newest"}, "startingOffsets is earliest, latest or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "offset -3 for t-0"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets must look like"),
        ({"startingOffsets": '{"t":3}'}, "startingOffsets must look like"),
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest (-1) in a batch read"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets can't be latest (-1) in a batch read"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest (-2)"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is a whole number"),
        ({"startingTimestamp": "-5"}, "startingTimestamp is at least 0"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-5}}'}, "startingOffsetsByTimestamp has a timestamp below 0"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "is error or latest, not 'skip'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is true or false, not 'no'"),
        ({"minPartitions": "0"}, "minPartitions is at least 1, not 0"),
        ({"fetchOffset__numRetries": "few"}, "fetchOffset.numRetries is a whole number"),
        ({"kafkaConsumer__pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs is at least 1"),
        ({"subscribe": "-", "subscribePattern": "[a-z&&[^bc]].*"}, "a class within a class, which only Java knows"),
        ({"startingOffset": "earliest"}, "there is no option 'startingoffset': did you mean startingOffsets?"),
        ({"topics": "t"}, "there is no option 'topics': there are kafka.*, assign, subscribe,"),
        ({"watermark": "1 hour"}, "there is no option 'watermark'"),
        ({"bootstrap__servers": "localhost:9092"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka__auto__offset__reset": "earliest"}, "startingOffsets says where to begin"),
        ({"consumeMode": "group"}, "consumeMode=group is for streams"),
    ],
)
def test_a_wrong_read_option_is_refused_in_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OdradekError) as caught:
        read(**options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_ending_options_are_refused_for_a_stream(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is for batch reads"):
        read(streaming=True, **{name: "5"})


def test_a_sink_requires_servers_and_accepts_a_topic() -> None:
    options = parse_write_options({"kafka.bootstrap.servers": "h:1", "TOPIC": "t", "kafka.linger.ms": "5"})
    assert (options.topic, options.client) == ("t", {"linger.ms": "5"})
    assert parse_write_options({"kafka.bootstrap.servers": "h:1,g:2"}).topic is None


def test_a_wrong_write_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean topic"):
        parse_write_options({"kafka.bootstrap.servers": "h:1", "topics": "t"})


# The JVM connector's options, each by its name


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_a_batch_ignores_the_options_of_triggers_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read(**{name: "5"}) == read()
    assert f"{name} is ignored: a batch read has no trigger" in caplog.text


def test_the_least_and_the_most_of_a_trigger_and_its_delay_are_read() -> None:
    options = read(streaming=True, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="2m")
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (5, 9)
    assert options.max_trigger_delay_ms == 120_000
    assert read(streaming=True).max_trigger_delay_ms == 900_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, r"\(9\) is above maxOffsetsPerTrigger \(5\)"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a duration such as 30s, 15m or 1h, not 'soon'"),
    ],
)
def test_a_wrong_trigger_option_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        read(streaming=True, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"valueSchema": "{}"}, "valueFormat is missing"),
        ({"valueDeadLetters": "{}"}, "valueFormat is missing"),
        (
            {"valueFormat": "avro", "valueSchema": "{}", "valueDeadLetters": '{"path":"/d"}'},
            "valueDeadLetters is not the JSON of its fields: Object contains unknown field `path`",
        ),
        ({"valueFormat": "xml", "valueSchema": "{}"}, "valueFormat is json, avro or protobuf, not 'xml'"),
        ({"valueFormat": "json", "valueSchema": "{}", "valueFraming": "confluent"}, "are for valueFormat=avro and"),
        ({"valueFormat": "Avro"}, "valueSchema is missing"),
        ({"valueFormat": "avro", "valueSchema": "{}", "valueMessage": "M"}, "valueMessage is the full name"),
        ({"valueFormat": "protobuf", "valueSchema": "AA=="}, "valueMessage is the full name"),
        ({"valueFormat": "avro", "valueSchema": "{}", "valueFraming": "x"}, "valueFraming is confluent, not 'x'"),
    ],
)
def test_options_about_values_belong_to_a_format(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        read(**options)


@pytest.mark.parametrize(("text", "ms"), [("30s", 30_000), ("15min", 900_000), ("1H", 3_600_000), ("250", 250)])
def test_a_duration_is_written_as_spark_writes_it(text: str, ms: int) -> None:
    assert read(streaming=True, maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_the_consumer_pool_s_options_are_accepted() -> None:
    options = read(
        kafkaConsumer__pollTimeoutMs="700", fetchOffset__numRetries="3", fetchOffset__retryIntervalMs="10",
        groupIdPrefix="g",
    )  # fmt: skip
    assert options.poll_timeout_ms == 700


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        (r"(?!internal-).*", "flights", True),
        (r"(?!internal-).*", "internal-flights", False),
        (r"(a|b)-\1", "a-a", True),
        (r"(a|b)-\1", "a-b", False),
        (r"(?<word>a|b)-\k<word>", "b-b", True),
        (r"\Qa.b\E.*", "a.b.c", True),
        (r"\Qa.b\E.*", "axb", False),
        (r"\Qa.b\E(?=-).*", "a.b-c", True),
        (r"a*+b", "aab", True),
        (r"[[:alpha:]]+", "abc", True),
        (r"\[a&&b", "[a&&b", True),
    ],
)
def test_a_pattern_has_the_syntax_of_java(pattern: str, name: str, matches: bool) -> None:
    strategy = read(subscribe="-", subscribePattern=pattern).strategy
    assert isinstance(strategy, SubscribePattern)
    assert strategy.matches(name) is matches


@pytest.mark.parametrize("key", ["fetch.max.bytes", "client.dns.lookup", "max.poll.records", "ssl.cipher.suites"])
def test_a_key_of_the_java_clients_is_accepted_with_one_warning(key: str, caplog: pytest.LogCaptureFixture) -> None:
    settings._warn_once.cache_clear()
    for _ in range(2):
        client_settings(ScanSettings, "h:1", {key: "5"})
    assert caplog.text.count(f"kafka.{key} has no effect") == 1


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean max\.poll\.records"):
        client_settings(ScanSettings, "h:1", {"max.pol.records": "5"})


@pytest.mark.parametrize("key", ["partitioner.class", "transactional.id"])
def test_a_key_that_would_change_what_is_written_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"kafka.{key} can't be set"):
        client_settings(SinkSettings, "h:1", {key: "x"})


def test_a_key_of_security_that_is_misspelt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean ssl\.truststore\.location"):
        client_settings(ScanSettings, "h:1", {"ssl.truststore.locaton": "ca.pem"})


def test_no_text_of_options_has_a_password() -> None:
    keys = {"kafka.sasl.password": "geheim", "kafka.group.id": "g", "consumeMode": "group"}
    assert "geheim" not in repr(read(streaming=True, **keys))
    assert "geheim" not in repr(parse_write_options({"kafka.bootstrap.servers": "h:1", **keys}))


@pytest.mark.parametrize(
    "schema", ["VALUE BINARY", "Offset BIGINT, timestamptype INT, tOPIC STRING", "hEADERS HEADERS"]
)
def test_a_schema_may_have_columns_in_any_case(schema: str) -> None:
    check_source_schema(columns(schema), include_headers=True)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("value BINARY, value BINARY", "two columns are named value"),
        ("value BINARY, offset BIGINT, VALUE BINARY", "two columns are named value"),
        (
            "VALUES BINARY",
            "there is no column 'VALUES': there are key, value, topic, partition, offset, timestamp, timestampType",
        ),
        ("VALUE STRING", "the column VALUE is of type binary, not string"),
        ("hEADERS HEADERS", "the column headers needs the option includeHeaders = true"),
    ],
)
def test_a_wrong_schema_is_refused_before_a_task_starts(schema: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        check_source_schema(columns(schema), include_headers=False)


@pytest.mark.parametrize("schema", ["value STRING, value BINARY", "value STRING, key STRING, key STRING"])
def test_rows_to_write_have_each_column_once(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="two columns are named "):
        check_sink_schema(columns(schema), topic="t", include_timestamp=False)
    check_sink_schema(columns("value STRING, x INT, x INT"), topic="t", include_timestamp=False)
