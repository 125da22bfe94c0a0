"""Sentences for error codes, which say what happened and what to do: `NOT_CONTROLLER: another broker is the …`."""

from collections.abc import Mapping
from typing import Final

from odradek.model.error_code import ErrorCode

_TRY_AGAIN: Final = "; try again"
_ASK: Final = "; ask the cluster's administrator"
_TEXTS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.unknown_server_error: "the broker failed in a way that it did not expect; its log says how",
    ErrorCode.offset_out_of_range: "the log has no such offset; odradek partitions offsets shows the first and the end",
    ErrorCode.corrupt_message: "a CRC is wrong, so the data was changed on its way or on disk; see odradek log verify",
    ErrorCode.unknown_topic_or_partition: "there is no such topic or partition, or it is being created or deleted",
    ErrorCode.invalid_fetch_size: "the number of bytes to fetch is invalid",
    ErrorCode.leader_not_available: "the partition has no leader; start a broker that has an in-sync replica",
    ErrorCode.not_leader_or_follower: "another broker leads the partition now, or the partition moved" + _TRY_AGAIN,
    ErrorCode.request_timed_out: "the broker could not finish in time; see whether all brokers run, and try again",
    ErrorCode.broker_not_available: "the broker does not run, or is shutting down",
    ErrorCode.replica_not_available: "the broker has no replica of the partition" + _TRY_AGAIN,
    ErrorCode.message_too_large: "the batch is larger than max.message.bytes of the topic; send less, or raise it",
    ErrorCode.offset_metadata_too_large: "the text of a commit is longer than offset.metadata.max.bytes",
    ErrorCode.network_exception: "the connection broke before the answer" + _TRY_AGAIN,
    ErrorCode.coordinator_load_in_progress: "the coordinator still reads its log" + _TRY_AGAIN,
    ErrorCode.coordinator_not_available: "the coordinator does not run, or its topic has no leader" + _TRY_AGAIN,
    ErrorCode.not_coordinator: "another broker is the coordinator now" + _TRY_AGAIN,
    ErrorCode.invalid_topic_exception: "the name of the topic is invalid, or the topic is internal",
    ErrorCode.record_list_too_large: "the batch is larger than a segment of the log; send less, or raise segment.bytes",
    ErrorCode.not_enough_replicas: "fewer replicas are in sync than min.insync.replicas; nothing was written; "
    "odradek partitions describe --under-replicated shows which",
    ErrorCode.not_enough_replicas_after_append: "the records are written, but fewer replicas are in sync than "
    "min.insync.replicas; sending again may write them twice",
    ErrorCode.invalid_required_acks: "acks is 0, 1 or all",
    ErrorCode.illegal_generation: "the group was rebalanced meanwhile; the member has to join again",
    ErrorCode.inconsistent_group_protocol: "the members of the group have no assignor in common",
    ErrorCode.unknown_member_id: "the group does not have this member, or has removed it",
    ErrorCode.rebalance_in_progress: "the group is rebalancing" + _TRY_AGAIN,
    ErrorCode.topic_authorization_failed: "you may not do this with the topic" + _ASK,
    ErrorCode.group_authorization_failed: "you may not do this with the group" + _ASK,
    ErrorCode.cluster_authorization_failed: "you may not do this with the cluster" + _ASK,
    ErrorCode.transactional_id_authorization_failed: "you may not use the transactional id" + _ASK,
    ErrorCode.invalid_timestamp: "the timestamp differs from the broker's clock by more than the topic allows",
    ErrorCode.unsupported_version: "the broker is too old for this request, or too new",
    ErrorCode.topic_already_exists: "there is a topic of this name already",
    ErrorCode.invalid_partitions: "the number of partitions is invalid; it can only grow",
    ErrorCode.invalid_replication_factor: "there are fewer live brokers than replicas, or the number is invalid",
    ErrorCode.invalid_config: "a key or a value of the configuration is invalid",
    ErrorCode.not_controller: "another broker is the controller now" + _TRY_AGAIN,
    ErrorCode.invalid_request: "the broker cannot make sense of the request; its log says why",
    ErrorCode.policy_violation: "a rule of the cluster forbids this" + _ASK,
    ErrorCode.out_of_order_sequence_number: "earlier records of this producer are missing; restart the producer",
    ErrorCode.invalid_producer_epoch: "a newer producer has the same id; stop one of them",
    ErrorCode.producer_fenced: "a newer producer has the same transactional id; stop one of them",
    ErrorCode.invalid_txn_state: "the transaction is not in a state that allows this",
    ErrorCode.transaction_coordinator_fenced: "a newer coordinator has the transaction; give its epoch",
    ErrorCode.concurrent_transactions: "the previous transaction of the producer is still ending" + _TRY_AGAIN,
    ErrorCode.kafka_storage_error: "the disk of the partition failed; see the broker's log and brokers log-dirs",
    ErrorCode.log_dir_not_found: "the broker has no such data directory",
    ErrorCode.unknown_producer_id: "the broker has forgotten the producer, as its records were deleted; restart it",
    ErrorCode.reassignment_in_progress: "the partition is being moved; wait, or cancel it with partitions reassign",
    ErrorCode.non_empty_group: "the group has members; stop them first",
    ErrorCode.group_id_not_found: "there is no such group; odradek groups list shows those that exist",
    ErrorCode.fenced_leader_epoch: "the client knows an older leader of the partition" + _TRY_AGAIN,
    ErrorCode.unknown_leader_epoch: "the broker knows an older leader of the partition" + _TRY_AGAIN,
    ErrorCode.offset_not_available: "the new leader does not know its high watermark yet" + _TRY_AGAIN,
    ErrorCode.preferred_leader_not_available: "the first replica is not in sync, or its broker does not run",
    ErrorCode.eligible_leaders_not_available: "no replica that may lead the partition is on a live broker",
    ErrorCode.election_not_needed: "the partition has the wanted leader already",
    ErrorCode.no_reassignment_in_progress: "the partition is not being moved",
    ErrorCode.group_subscribed_to_topic: "members of the group read the topic; stop them first",
    ErrorCode.unstable_offset_commit: "a transaction that commits offsets is open; wait until it ends",
    ErrorCode.throttling_quota_exceeded: "a quota is used up; wait",
    ErrorCode.unknown_topic_id: "the topic was deleted, perhaps created again" + _TRY_AGAIN,
    ErrorCode.fenced_instance_id: "another member has the same group.instance.id; give each its own",
    ErrorCode.group_max_size_reached: "the group has as many members as group.max.size allows",
    ErrorCode.unsupported_assignor: "the coordinator has no such assignor; see group.consumer.assignors",
    ErrorCode.transactional_id_not_found: "there is no such transactional id",
}


def explained(code: ErrorCode, reason: str | None = None) -> str:
    """Return a code's name as Kafka writes it, and the broker's reason or else a sentence."""
    return f"{code.name.upper()}: {reason or _TEXTS.get(code) or code.name.replace('_', ' ')}"


__all__ = ["explained"]
