"""The types of the clients' settings: written by tests/clients/setting_types.py, never by hand.

`Producer(**settings)` of a dict that is declared as `ProducerConfig` is checked, too.
"""

from collections.abc import Callable
from typing import Literal, TypedDict


class ClientConfig(TypedDict, total=False):
    """Settings of `Admin`."""

    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"]
    ssl_keystore_location: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"]
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: Literal["https", "HTTPS", ""]
    ssl_enabled_protocols: str | list[str] | tuple[str, ...]
    sasl_jaas_config: str | None
    client_id: str
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_oauthbearer_token_provider: str | Callable[[], object] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    request_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    default_api_timeout_ms: int
    receive_message_max_bytes: int


class FetchConfig(ClientConfig, total=False):
    """Settings of `SimpleConsumer`."""

    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool


class ProducerConfig(ClientConfig, total=False):
    """Settings of `Producer`."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    linger_ms: int
    batch_size: int
    buffer_memory: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: int
    max_block_ms: int
    max_request_size: int
    allow_auto_create_topics: bool
    partitioner_class: str
    topic_metadata_refresh_interval_ms: int
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool


class ConsumerConfig(FetchConfig, total=False):
    """Settings of `Consumer`."""

    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    group_instance_id: str | None
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    client_rack: str | None
    queued_max_messages_kbytes: int


class ZookeeperConsumerConfig(ClientConfig, total=False):
    """Settings of `ZookeeperConsumer`."""

    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_truststore_password: str | None
    zookeeper_ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"]
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"]
    zookeeper_ssl_endpoint_identification_algorithm: Literal["https", "HTTPS", ""]
    zookeeper_digest_user: str | None
    zookeeper_digest_password: str | None
    zookeeper_set_acl: bool
    group_id: str
    consumer_id: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    rebalance_max_retries: int
    rebalance_backoff_ms: int
    auto_offset_reset: Literal["smallest", "largest", "earliest", "latest"]
    auto_commit_enable: bool
    auto_commit_interval_ms: int
    offsets_storage: Literal["zookeeper", "kafka"]
    dual_commit_enabled: bool
    consumer_timeout_ms: int
    exclude_internal_topics: bool
    fetch_message_max_bytes: int
    fetch_min_bytes: int
    fetch_wait_max_ms: int
