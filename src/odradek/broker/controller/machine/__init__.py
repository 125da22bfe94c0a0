"""The controller's decisions, as pure functions: an image of the cluster in, operations on the metadata tree out.

`broker.controller` reads the tree, calls these functions and writes the result, each time with a check of the
controller epoch. Brokers that are shutting down and offline replicas are arguments (see
`broker.controller.controller_context`). All other inputs are in the tree or the configuration, so a new controller
finishes what a dead one left half done.

`elections` elects leaders when brokers or logs fail or return, `leadership` on request: preferred, unclean, for a
controlled shutdown, for balance. `topic_creation` and `partition_creation` place replicas by `placement`;
`initialization` creates partition states. `reassignment` moves replicas, `reassign_partitions_request` reads a tool's
node for it, and `reassignment_proposals` generates targets for the commands. `topic_deletion` removes a topic's nodes.
`alter_partition` decides on a leader's ISR change, which passes

    broker.replication.alter_partition_manager ─▶ alter_partition_requests ─▶ broker.handlers.alter_partition (skipped
    if the leader is the controller) ─▶ broker.controller.alter_partition_jobs ─▶ alter_partition
"""

from odradek.broker.controller.machine.alter_partition import alter_partition, check_broker_epoch, topic_name
from odradek.broker.controller.machine.elections import elect, elections
from odradek.broker.controller.machine.initialization import initial_operations, needs_initialization
from odradek.broker.controller.machine.leadership import (
    ControlledShutdownPlan,
    ElectionType,
    balance_preferred_leaders,
    elect_on_demand,
    plan_preferred_elections,
    shut_down,
)
from odradek.broker.controller.machine.partition_creation import NewPartitions, plan_partitions
from odradek.broker.controller.machine.placement import place
from odradek.broker.controller.machine.reassign_partitions_request import ReassignPartitionsRequest
from odradek.broker.controller.machine.reassignment import (
    STEP_PARTITIONS,
    Assignment,
    ReassignmentPlan,
    ReassignmentStep,
    StopReplicas,
    advance,
    plan_reassignments,
    reassignments,
)
from odradek.broker.controller.machine.reassignment_proposals import DrainPlan, generate_assignment, plan_drain
from odradek.broker.controller.machine.topic_creation import (
    MAX_PARTITIONS,
    ExistingTopicNames,
    PartitionLimit,
    TopicCollisionError,
    TopicCreation,
    TopicPlan,
    plan_topic,
)
from odradek.broker.controller.machine.topic_deletion import TopicDeletion, deletion_operations

__all__ = [
    "MAX_PARTITIONS",
    "STEP_PARTITIONS",
    "Assignment",
    "ControlledShutdownPlan",
    "DrainPlan",
    "ElectionType",
    "ExistingTopicNames",
    "NewPartitions",
    "PartitionLimit",
    "ReassignPartitionsRequest",
    "ReassignmentPlan",
    "ReassignmentStep",
    "StopReplicas",
    "TopicCollisionError",
    "TopicCreation",
    "TopicDeletion",
    "TopicPlan",
    "advance",
    "alter_partition",
    "balance_preferred_leaders",
    "check_broker_epoch",
    "deletion_operations",
    "elect",
    "elect_on_demand",
    "elections",
    "generate_assignment",
    "initial_operations",
    "needs_initialization",
    "place",
    "plan_drain",
    "plan_partitions",
    "plan_preferred_elections",
    "plan_reassignments",
    "plan_topic",
    "reassignments",
    "shut_down",
    "topic_name",
]
