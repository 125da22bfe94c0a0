"""Options of the data source: the JVM connector's names and defaults, and one sentence for each slip."""

import pickle

import pytest

from odradek.model import ConfigurationError, OdradekError, TopicPartition
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


def test_options_of_spark_and_other_sources_are_ignored() -> None:
    assert read(checkpointLocation="/c", path="/p", queryName="q", pollTimeoutMs="5").strategy == Subscribe(
        topics=("t",)
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka__bootstrap__servers": "-"}, "kafka.bootstrap.servers is missing"),
        ({"kafka__bootstrap__servers": "localhost"}, "'localhost', which is not HOST:PORT"),
        ({"subscribe": "-"}, "one of assign, subscribe and subscribePattern says what to read: none is given"),
        ({"subscribePattern": ".*"}, "subscribe and subscribePattern are given"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribe": "a/b"}, "'a/b' has others"),
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
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for stream reads"),
        ({"startingOffset": "earliest"}, "there is no option 'startingoffset': did you mean startingOffsets?"),
        ({"bootstrap__servers": "localhost:9092"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka__auto__offset__reset": "earliest"}, "startingOffsets says where to begin"),
        ({"minOffsetsPerTrigger": "5"}, "use a longer trigger interval"),
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
