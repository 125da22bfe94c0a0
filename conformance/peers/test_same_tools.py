"""Kafka's command-line tools with our broker and with Apache Kafka: the same commands print the same.

A row is a command, or commands that belong together, and the lines that differ on purpose. Compared are exit codes and
lines, without order, addresses, ids, times and stack traces, and without the texts of errors: ours say what to do.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka
import pytest

from conformance.peers.compare_with_kafka import BrokerPair
from conformance.peers.kafka_tools import kafka_tools, tool
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

DEADLINE_S: Final = 120.0
BEGIN_MS: Final = 1_790_000_000_000
_TOOLS: Final = "org.apache.kafka.tools"
CLASSES: Final = {
    "acls": f"{_TOOLS}.AclCommand",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": f"{_TOOLS}.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "features": f"{_TOOLS}.FeatureCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "streams-application-reset": f"{_TOOLS}.StreamsResetter",
    "streams-groups": f"{_TOOLS}.streams.StreamsGroupCommand",
    "topics": f"{_TOOLS}.TopicCommand",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
"""Kafka's scripts, without `kafka-` and `.sh`, and their classes."""
_LEFT_OUT: Final = (
    (r"\[\d{4}-[^\]]*\] ", ""),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"(TopicId:|Cluster ID:) \S+", r"\1 ID"),
    (r"clientId=adminclient-\d+", "clientId=ID"),
    (r"(\w+Exception): .*", r"\1"),
    (r"(Error while executing topic command) : .*", r"\1"),
    (r"(Unregister broker request for broker ID 9 failed): .*", r"\1"),
    (r"min\.insync\.replicas=1,(?=\S*=)", ""),  # Kafka sets it for the cluster (KIP-966)
    (r'"timestamp":\d+', '"timestamp":TIME'),
    (r"\t\d{13} *\t\d+", "\tSTART \tAGE"),
    (r"\t\d{13}\b", "\tTIME"),
    (r" +", " "),
)
_STACK: Final = re.compile(r"\s+(at |Suppressed: |\.\.\. \d+ more).*")


class Row(NamedTuple):
    """`commands` without `--bootstrap-server`, and a pattern of lines that differ for a reason."""

    name: str
    commands: tuple[str, ...]
    differs: str = ""
    reason: str = ""


def row(name: str, *commands: str, differs: str = "", reason: str = "") -> Row:
    return Row(name, commands, differs, reason)


LACKING: Final = "InitProducerId|ShareGroupState|Streams|Telemetry"
"""Parts of the names of APIs that Odradek lacks, or has in other versions."""
ROWS: Final = (
    row(
        "a topic",
        "topics --create --topic life --partitions 3 --config retention.ms=1000",
        "topics --create --topic life",
        "topics --create --topic life --if-not-exists",
        "topics --describe --topic life",
        "topics --alter --topic life --partitions 2",
        "topics --alter --topic life --partitions 4",
        "topics --describe --topics-with-overrides --topic life",
        "topics --delete --topic life",
        "topics --delete --topic life",
    ),
    row(
        "topics that cannot be",
        "topics --create --topic bad --config no.such=1",
        "topics --create --topic bad --replication-factor 2",
        "topics --describe --topic nobody",
        "topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
        "topics --create --topic bad/name",
        "topics --create --topic .",
        "topics --create --topic tools.a",
        "topics --create --topic __cluster_metadata",
        "topics --create --topic zero --partitions 0",
        "topics --create --topic bad --replica-assignment 0:0",
        "topics --create --topic bad --replica-assignment 9",
        "topics --create --topic bad --replica-assignment 0 --partitions 1",
        "topics --alter --topic tools-b --partitions 2",
        "topics --alter --topic tools-b",
        "topics --alter --topic nobody --partitions 2",
        "topics --alter --topic nobody --partitions 2 --if-exists",
        "topics --delete --topic nobody --if-exists",
        "topics --delete --topic bad/name",
        "topics --delete --topic __cluster_metadata",
    ),
    row(
        "partitions in trouble",
        "topics --describe --under-replicated-partitions",
        "topics --describe --unavailable-partitions",
        "topics --describe --under-min-isr-partitions",
        "topics --list --exclude-internal --topic tools-.*",
    ),
    row(
        "a topic's configuration",
        "configs --alter --entity-type topics --entity-name tools-b --add-config retention.ms=7000000",
        "configs --describe --entity-type topics --entity-name tools-b",
        "configs --alter --entity-type topics --entity-name tools-b --delete-config retention.ms",
        "configs --alter --entity-type topics --entity-name tools-b --add-config retention.ms=x",
        "configs --alter --entity-type topics --entity-name tools-b --delete-config no.such",
        "configs --alter --entity-type topics --entity-name nobody --add-config retention.ms=1",
        "configs --alter --entity-type topics --entity-name tools-b --add-config cleanup.policy=[compact,delete]",
        "configs --alter --entity-type topics --entity-name tools-b --delete-config cleanup.policy",
        "configs --alter --entity-type topics --entity-name tools-b --add-config cleanup.policy=nothing",
        *(
            "configs --alter --entity-type topics --entity-name tools-b --add-config "
            f"leader.replication.throttled.replicas={each}"
            for each in ("[0:0]", "*", "x")
        ),
        "configs --alter --topic tools-b --delete-config leader.replication.throttled.replicas",
        "configs --describe --topic tools-b",
    ),
    row(
        "a topic's whole configuration",
        "configs --describe --entity-type topics --entity-name tools-b --all",
        differs=r"(flush\.ms|segment\.ms|segment\.jitter\.ms|min\.insync\.replicas)=.*",
        reason="Odradek names the broker's key that a default comes from; Kafka sets min.insync.replicas (KIP-966)",
    ),
    row(
        "a broker's configuration",
        "configs --alter --entity-type brokers --entity-name 0 --add-config log.cleaner.threads=2",
        "configs --describe --entity-type brokers --entity-name 0",
        "configs --alter --entity-type brokers --entity-name 0 --delete-config log.cleaner.threads",
        "configs --alter --entity-type brokers --entity-name 0 --add-config broker.id=7",
        "configs --alter --entity-type brokers --entity-name 0 --add-config log.cleaner.threads=x",
        *(
            f"configs --alter --broker 0 --add-config leader.replication.throttled.rate={each}"
            for each in ("-1", "0", "9223372036854775808")
        ),
        "configs --alter --entity-type brokers --entity-name 0 --delete-config leader.replication.throttled.rate",
        "configs --describe --entity-type brokers --entity-name 9",
        "configs --describe --broker 0",
    ),
    row(
        "levels of loggers",
        "configs --alter --entity-type broker-loggers --entity-name 0 --add-config root=ERROR",
        "configs --describe --entity-type broker-loggers --entity-name 0",
        "configs --alter --entity-type broker-loggers --entity-name 0 --add-config no.such=INFO",
        "configs --alter --entity-type broker-loggers --entity-name 0 --add-config root=LOUD",
        "configs --alter --entity-type broker-loggers --entity-name 0 --add-config root=WARN",
        differs=r"(?!root)\S+=\w+ sensitive=false synonyms=\{\}",
        reason="the names of loggers",
    ),
    row(
        "the configuration of all brokers",
        "configs --alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000",
        "configs --describe --entity-type brokers --entity-default",
        "configs --alter --entity-type brokers --entity-default --delete-config message.max.bytes",
        differs=r"min\.insync\.replicas=.*",
        reason="Kafka sets it for the cluster (KIP-966)",
    ),
    row(
        "a group's configuration",
        "configs --alter --entity-type groups --entity-name g --add-config consumer.assignment.interval.ms=500",
        "configs --describe --entity-type groups --entity-name g",
        "configs --alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=1",
        "configs --alter --entity-type groups --entity-name g --delete-config consumer.assignment.interval.ms",
    ),
    row(
        "client metrics",
        "client-metrics --list",
        "client-metrics --describe",
        "client-metrics --describe --name m",
        "configs --describe --entity-type client-metrics",
    ),
    row(
        "client metrics that are asked for",
        "client-metrics --alter --name m --metrics org.apache.kafka.producer. --interval 1000",
        "client-metrics --delete --name m",
        "configs --alter --entity-type client-metrics --entity-name m --add-config interval.ms=1000",
        "client-metrics --delete --name m",
        differs=".*",
        reason="Odradek takes no metrics from clients (KIP-714)",
    ),
    row(
        "the configuration of share and streams groups",
        "configs --alter --entity-type groups --entity-name off --add-config share.session.timeout.ms=50000",
        "configs --alter --entity-type groups --entity-name off --add-config streams.num.standby.replicas=1",
        "configs --alter --entity-type groups --entity-name off "
        "--delete-config share.session.timeout.ms,streams.num.standby.replicas",
        differs=".*",
        reason="these groups are off",
    ),
    row(
        "share and streams groups",
        "share-groups --list --state",
        "share-groups --describe --all-groups",
        "share-groups --delete --group nobody",
        "streams-groups --list --state",
        "streams-groups --describe --all-groups",
        "streams-groups --delete --group nobody",
        "streams-groups --delete-offsets --group nobody --input-topic tools-a",
        "groups --list --share",
        "groups --list --streams",
    ),
    row(
        "share and streams groups that are not there",
        "share-groups --describe --group nobody --members",
        "share-groups --describe --group nobody --offsets",
        "streams-groups --describe --group nobody",
        "streams-groups --describe --group nobody --state",
        differs="(?!exit).*",
        reason="these groups are off: UNSUPPORTED_VERSION",
    ),
    row(
        "offsets of share and streams groups",
        "share-groups --reset-offsets --group nobody --topic tools-a --to-earliest --dry-run",
        "streams-groups --reset-offsets --group nobody --input-topic tools-a --to-earliest --dry-run",
        differs=".*",
        reason="these groups are off: UNSUPPORTED_VERSION",
    ),
    row(
        "delegation tokens",
        "delegation-tokens --create --max-life-time-period 1000",
        "delegation-tokens --describe",
        "delegation-tokens --renew --renew-time-period 1000 --hmac aGVsbG8=",
        "delegation-tokens --expire --expiry-time-period 1000 --hmac aGVsbG8=",
    ),
    row(
        "a group without members",
        "consumer-groups --group idle --topic tools-a --reset-offsets --to-earliest --execute",
        "consumer-groups --group idle --topic tools-a --reset-offsets --to-latest --dry-run",
        "consumer-groups --describe --group idle",
        "consumer-groups --describe --group idle --state",
        "consumer-groups --describe --group idle --members --verbose",
        "consumer-groups --delete-offsets --group idle --topic tools-a:1",
        "consumer-groups --describe --group idle --offsets",
        "consumer-groups --delete --group idle",
    ),
    row(
        "a group that is not there",
        "consumer-groups --describe --group nobody",
        "consumer-groups --delete --group nobody",
        "consumer-groups --delete-offsets --group nobody --topic tools-b",
        "consumer-groups --list --state bogus",
        "consumer-groups --list --type bogus",
    ),
    row(
        "offsets of a group",
        "consumer-groups --reset-offsets --group moved --topic tools-a --to-earliest --dry-run",
        "consumer-groups --reset-offsets --group moved --topic nobody --to-earliest --dry-run",
        "consumer-groups --reset-offsets --group moved --topic tools-a:0 --to-offset 99 --execute",
        "consumer-groups --reset-offsets --group moved --topic tools-a:0 --shift-by -2 --execute",
        "consumer-groups --reset-offsets --group moved --topic tools-a --to-datetime 2026-09-21T14:13:20.002 --execute",
        "consumer-groups --reset-offsets --group moved --topic tools-a --to-current --export --dry-run",
        "consumer-groups --reset-offsets --group moved --all-topics --to-latest --execute",
        "consumer-groups --reset-offsets --group moved --topic tools-a --execute",
        "consumer-groups --delete-offsets --group moved --topic nobody",
        "consumer-groups --delete --group moved --group nobody",
        "streams-application-reset --application-id moved --input-topics tools-a",
        "streams-application-reset --application-id moved --input-topics nobody",
        "consumer-groups --delete --group moved",
    ),
    row(
        "a group with a member",
        "consumer-groups --describe --group live",
        "consumer-groups --describe --group live --members --verbose",
        "consumer-groups --describe --group live --state",
        "consumer-groups --delete --group live",
        "consumer-groups --delete-offsets --group live --topic tools-b",
        "consumer-groups --reset-offsets --group live --topic tools-a --to-earliest --execute",
        "streams-application-reset --application-id live --input-topics tools-b",
        "consumer-groups --list --state stable",
        "groups --list --group-type classic",
    ),
    row(
        "offsets",
        "get-offsets --topic tools-a",
        "get-offsets --topic tools-a --time earliest",
        "get-offsets --topic tools-a --time max-timestamp",
        "get-offsets --topic tools-a --time latest-tiered",
        "get-offsets --topic tools-a --time earliest-local",
        "get-offsets --topic tools-a --time 1790000000002",
        "get-offsets --topic tools-a --time x",
        "get-offsets --topic nobody",
        "get-offsets --topic-partitions tools-a:0,nobody:1",
        "get-offsets --topic-partitions tools-[ac]:0-1",
    ),
    row(
        "records",
        "console-consumer --topic tools-a --partition 1 --offset 0 --max-messages 3 --timeout-ms 60000",
        "console-consumer --topic tools-a --from-beginning --max-messages 6 --timeout-ms 60000 --group console",
        "verifiable-producer --topic tools-b --max-messages 5",
    ),
    row(
        "records deleted",
        "delete-records --offset-json-file DIRECTORY/records.json",
        "get-offsets --topic tools-c --time earliest",
        "delete-records --offset-json-file DIRECTORY/beyond.json",
        "delete-records --offset-json-file DIRECTORY/plan.json",
    ),
    row(
        "directories",
        "log-dirs --describe --topic-list tools-a",
        "log-dirs --describe --topic-list nobody",
        "log-dirs --describe --broker-list 0 --topic-list tools-a,tools-c",
        "log-dirs --describe --broker-list 9",
    ),
    row(
        "a log",
        "dump-log --files DATA/tools-a-0/00000000000000000000.log --print-data-log",
        "dump-log --files DATA/tools-a-0/00000000000000000000.log --deep-iteration --skip-record-metadata",
        "dump-log --files DATA/tools-a-0/nofile.log",
    ),
    row(
        "leaders",
        "leader-election --election-type PREFERRED --topic tools-a --partition 0",
        "leader-election --election-type PREFERRED --topic tools-a --partition 9",
        "leader-election --election-type PREFERRED --all-topic-partitions",
        "leader-election --election-type PREFERRED --path-to-json-file DIRECTORY/plan.json",
        "leader-election --election-type UNCLEAN --all-topic-partitions",
        "leader-election --election-type UNCLEAN --topic nobody --partition 0",
    ),
    row(
        "reassignments",
        "reassign-partitions --list",
        "reassign-partitions --generate --broker-list 0 --topics-to-move-json-file DIRECTORY/topics.json",
        "reassign-partitions --generate --broker-list 0,9 --topics-to-move-json-file DIRECTORY/topics.json",
        "reassign-partitions --generate --broker-list 0,0 --topics-to-move-json-file DIRECTORY/topics.json",
        *(
            f"reassign-partitions --execute --reassignment-json-file DIRECTORY/{each}.json"
            for each in ("gone", "nofile", "records", "other", "twice", "empty")
        ),
        "reassign-partitions --execute --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --execute --disallow-replication-factor-change "
        "--reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --verify --preserve-throttles --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --verify --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --cancel --reassignment-json-file DIRECTORY/plan.json",
    ),
    row(
        "a throttled reassignment",
        "reassign-partitions --execute --throttle 1000000 --replica-alter-log-dirs-throttle 1000000 "
        "--reassignment-json-file DIRECTORY/plan.json",
        "configs --describe --entity-type brokers --entity-name 0",
        "configs --describe --entity-type topics --entity-name tools-b",
        "reassign-partitions --verify --reassignment-json-file DIRECTORY/plan.json",
        "configs --describe --entity-type brokers --entity-name 0",
        "configs --describe --entity-type topics --entity-name tools-b",
        "reassign-partitions --execute --throttle 0 --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --execute --additional --throttle 5 --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --verify --reassignment-json-file DIRECTORY/plan.json",
        "configs --describe --entity-type topics --entity-name tools-b",
        "reassign-partitions --execute --throttle -7 --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --execute --throttle fast --reassignment-json-file DIRECTORY/plan.json",
        "reassign-partitions --verify --reassignment-json-file DIRECTORY/gone.json",
        differs=r"(leader|follower)\.replication\.throttled\.rate=.*|replica\.alter\.log\.dirs\.io\S*=.*",
        reason="Odradek also names the default of these keys",
    ),
    row(
        "a directory that is not there",
        "reassign-partitions --execute --timeout 1000 --reassignment-json-file DIRECTORY/elsewhere.json",
        "reassign-partitions --verify --reassignment-json-file DIRECTORY/elsewhere.json",
    ),
    row(
        "the cluster",
        "cluster cluster-id --bootstrap-server SERVER",
        "cluster list-endpoints --bootstrap-server SERVER",
        "cluster list-endpoints --bootstrap-server SERVER --include-fenced-brokers",
        "cluster unregister --bootstrap-server SERVER --id 9",
    ),
    row(
        "features",
        "features upgrade --feature group.version=1",
        "features downgrade --feature transaction.version=1",
        "features upgrade --feature transaction.version=2 --dry-run",
        "features upgrade --feature transaction.version=2",
        "features upgrade --feature transaction.version=9",
        "features upgrade --feature no.such=1",
        "features upgrade --metadata 4.4-IV2",
        "features downgrade --metadata 4.0-IV3",
        "features downgrade --metadata 4.0-IV3 --unsafe",
        "features disable --feature transaction.version",
        "features disable --feature no.such",
        "features upgrade --feature group.version=1 --feature transaction.version=2",
        "features upgrade --release-version 9.9",
        "features version-mapping",
        "features feature-dependencies --feature transaction.version=2",
    ),
    row(
        "the features of today's release",
        "features describe",
        "features upgrade --release-version 4.4",
        differs=".*",
        reason="the release has KRaft, share and streams groups and eligible leader replicas, which are off",
    ),
    row(
        "the features of other releases",
        "features upgrade --release-version 4.3",
        "features downgrade --release-version 4.0",
        "features downgrade --release-version 3.3",
        differs="Could not .*",
        reason="both refuse, for the first of the features that does not fit",
    ),
    row(
        "versions of APIs",
        "broker-api-versions",
        differs=rf".*({LACKING}).*",
        reason="APIs that Odradek lacks, and newer versions",
    ),
    row(
        "open transactions",
        "transactions describe-producers --topic tools-a --partition 0",
        "transactions find-hanging --broker-id 0",
        "transactions find-hanging --topic tools-a",
        "transactions abort --topic tools-a --partition 0 --producer-id 999 --producer-epoch 0 --coordinator-epoch 0",
    ),
    row(
        "transactions",
        "transactions list",
        "transactions list --filter-states Bogus",
        "transactions list --duration-filter 1",
        "transactions list --transactional-id-pattern op.*",
        "transactions list --transactional-id-pattern *",
        "transactions describe --transactional-id open",
        "transactions describe --transactional-id ended",
        "transactions describe --transactional-id nobody",
        "transactions describe-producers --topic tools-d --partition 0",
        "transactions find-hanging --broker-id 0 --max-transaction-timeout 0",
        "transactions abort --topic tools-d --partition 0 --start-offset 0",
        "transactions abort --topic tools-d --partition 0 --start-offset 7",
        "transactions forceTerminateTransaction --transactional-id nobody",
        "transactions forceTerminateTransaction --transactional-id open",
        "transactions describe --transactional-id ended",
        "transactions describe-producers --topic tools-d --partition 0",
        "transactions list",
    ),
    row(
        "the quorum",
        "metadata-quorum describe --status",
        "metadata-quorum describe --status --human-readable",
        "metadata-quorum describe",
        "metadata-quorum describe --replication",
        differs=r"(?!exit|LeaderId|NodeId|MaxFollower|CurrentObservers).*",
        reason="metadata is in a tree, not in KRaft: epochs, offsets and the voters' directories",
    ),
    row(
        "users with SCRAM credentials",
        "configs --alter --entity-type users --entity-name eve --add-config SCRAM-SHA-256=[password=x]",
        "configs --alter --entity-type users --entity-name eve --add-config SCRAM-SHA-512=[iterations=8192,password=y]",
        "configs --alter --entity-type users --entity-name eve --add-config SCRAM-SHA-256=[iterations=1,password=x]",
        "configs --alter --entity-type users --entity-name eve --delete-config SCRAM-SHA-512",
        "configs --alter --entity-type users --entity-name eve --delete-config SCRAM-SHA-512",
    ),
    row(
        "users and quotas",
        "configs --describe --entity-type users",
        "configs --alter --entity-type clients --entity-name app --add-config producer_byte_rate=1048576",
        "configs --alter --entity-type users --entity-name eve --add-config request_percentage=50.5",
        "configs --alter --entity-type ips --entity-name 10.0.0.1 --add-config connection_creation_rate=5",
        "configs --alter --entity-type clients --entity-name app --add-config producer_byte_rat=1",
        "configs --describe --entity-type clients --entity-name app",
        "configs --describe --entity-type users --entity-name eve",
        "configs --describe --entity-type ips --entity-name 10.0.0.1",
        "configs --alter --entity-type users --entity-default --add-config consumer_byte_rate=1000",
        "configs --describe --entity-type users --entity-default",
        "configs --alter --entity-type users --entity-default --delete-config consumer_byte_rate",
        "configs --alter --entity-type users --entity-name u --entity-type clients --entity-name c "
        "--add-config consumer_byte_rate=1000,controller_mutation_rate=2",
        "configs --describe --entity-type users --entity-type clients",
        "configs --alter --entity-type users --entity-name u --entity-type clients --entity-name c "
        "--delete-config consumer_byte_rate,controller_mutation_rate",
        "configs --alter --entity-type clients --entity-name app --delete-config producer_byte_rate",
        "configs --alter --entity-type users --entity-name eve --delete-config request_percentage",
        "configs --alter --entity-type ips --entity-name 10.0.0.1 --delete-config connection_creation_rate",
    ),
    row(
        "ACLs without an authorizer",
        "acls --list",
        "acls --add --allow-principal User:a --operation Read --topic t",
        "acls --remove --force --topic t",
    ),
)


@pytest.fixture(scope="module")
def prepared(pair: BrokerPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Topics with records, and a group with a member; the folder has the tools' files."""
    directory = tmp_path_factory.mktemp("tools")
    for name, offset in (("records", 2), ("beyond", 999)):
        partition = {"topic": "tools-c", "partition": 0, "offset": offset}
        (directory / f"{name}.json").write_text(json.dumps({"partitions": [partition], "version": 1}))
    for name, replicas in (("other", [[9]]), ("twice", [[0], [0]]), ("empty", [])):
        entries = [{"topic": "tools-b", "partition": 0, "replicas": each} for each in replicas]
        (directory / f"{name}.json").write_text(json.dumps({"partitions": entries, "version": 1}))
    for name, topic, path in (
        ("plan", "tools-b", "any"),
        ("elsewhere", "tools-b", "/nowhere"),
        ("gone", "nobody", "any"),
    ):
        entry = {"topic": topic, "partition": 0, "replicas": [0], "log_dirs": [path]}
        (directory / f"{name}.json").write_text(json.dumps({"partitions": [entry], "version": 1}))
    (directory / "topics.json").write_text(json.dumps({"topics": [{"topic": "tools-a"}], "version": 1}))
    pair.create({"tools-a": {}, "tools-b": {}, "tools-c": {}, "tools-d": {}}, 2)
    members, writers = [], []
    for servers in (pair.ours.bootstrap_servers, pair.kafka.bootstrap_servers):
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        for topic in ("tools-a", "tools-c"):
            for number in range(6):
                producer.produce(topic, b"v%d" % number, b"k", partition=number % 2, timestamp=BEGIN_MS + number)
                producer.flush()
        for transactional_id in ("ended", "open"):
            config = {"bootstrap.servers": servers, "transactional.id": transactional_id}
            writers.append(confluent_kafka.Producer(config))
            writers[-1].init_transactions(DEADLINE_S)
            writers[-1].begin_transaction()
            writers[-1].produce("tools-d", b"v", partition=0)
            writers[-1].flush(DEADLINE_S)
            if transactional_id == "ended":
                writers[-1].commit_transaction(DEADLINE_S)
        # It is polled no more, and must stay in the group while all tools run.
        config = {"bootstrap.servers": servers, "group.id": "live", "client.id": "member"}
        member = confluent_kafka.Consumer(config | {"max.poll.interval.ms": 3_600_000})
        member.subscribe(["tools-b"])
        eventually(lambda member=member: member.poll(0.1) or member.assignment(), within_s=DEADLINE_S)
        members.append(member)
    yield directory
    for member in members:
        member.close()


def outputs(pair: BrokerPair, command: str, directory: Path) -> list[list[str]]:
    """Return the lines that the command prints with our broker, and with Kafka."""
    tool, *arguments = command.replace("DIRECTORY", str(directory)).split()
    if "SERVER" not in arguments and tool != "dump-log":
        arguments = ["--bootstrap-server", "SERVER", *arguments]
    found = []
    for broker in (pair.ours, pair.kafka):
        here = {"SERVER": broker.bootstrap_servers, "DATA": str(broker.data_dir)}
        words = [re.sub("SERVER|DATA", lambda found, here=here: here[found[0]], each) for each in arguments]
        status, output = kafka_tools().run(CLASSES[tool], *words)
        host, port = broker.bootstrap_servers.split(":")
        output = output.replace(f"{host}:{port}", "SERVER").replace(f" {port} ", " PORT ")
        output = output.replace(str(broker.data_dir), "DATA")
        for pattern, replacement in _LEFT_OUT:
            output = re.sub(pattern, replacement, output)
        lines = sorted(line.strip() for line in output.splitlines() if line.strip() and not _STACK.fullmatch(line))
        found.append([f"exit {status}", *lines])
    return found


@pytest.mark.parametrize("each", ROWS, ids=lambda each: each.name)
def test_a_tool_prints_the_same(pair: BrokerPair, prepared: Path, each: Row) -> None:
    """M1"""
    differences = 0
    for command in each.commands:
        ours, kafkas = outputs(pair, command, prepared)
        if ours != kafkas and "--describe" in command and not each.differs:
            ours, kafkas = outputs(pair, command, prepared)  # Kafka may answer a change before it applies it
        differences += ours != kafkas
        if each.differs:
            ours, kafkas = (
                [line for line in lines if not re.fullmatch(each.differs, line)] for lines in (ours, kafkas)
            )
        assert ours == kafkas, command
    assert bool(differences) == bool(each.differs), f"no longer true: {each.reason}"


# ---- Tools whose records are read in the tree ------------------------------------------------------------------------

OPTIONS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


PREFIXED: Final = "resourceType=TOPIC, name=t-, patternType=PREFIXED"


READ: Final = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"


DENIED: Final = "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)"


def test_kafka_acls_adds_lists_and_removes(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options=OPTIONS) as broker:

        def acls(*arguments: str) -> str:
            line = ("--bootstrap-server", broker.bootstrap_servers, *arguments)
            return tool("org.apache.kafka.tools.AclCommand", *line)

        prefix = ("--topic", "t-", "--resource-pattern-type", "prefixed")
        acls("--add", "--allow-principal", "User:alice", "--operation", "Read", *prefix)
        acls("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", *prefix)
        acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "u", "--idempotent")
        found = acls("--list", "--topic", "t-9", "--resource-pattern-type", "match")
        assert PREFIXED in found
        assert READ in found
        assert DENIED in found
        assert "name=u" not in found
        assert "operation=IDEMPOTENT_WRITE" in acls("--list", "--cluster")
        left = acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read", *prefix)
        assert READ not in left
        assert DENIED in acls("--list")
