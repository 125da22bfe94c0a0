"""The controller's decisions, as pure functions: an image of the cluster in, operations on the metadata tree out.

Placement of new topics and partitions, their first states, leader elections, in-sync sets, reassignment, deletion,
producer ids. `broker.controlling` reads the tree, calls these functions and writes the result, each time with a check
of the controller epoch. Every decision is made from the tree alone, so the next controller finishes what a dead one
left half done.
"""

from odradek.controller.alter_partition import AlterPartitionItem, alter_partition, check_broker_epoch, topic_name
from odradek.controller.elections import elect, elections
from odradek.controller.initialization import initial_operations, needs_initialization
from odradek.controller.leadership import (
    ControlledShutdownPlan,
    ElectionType,
    balance_preferred_leaders,
    elect_on_demand,
    plan_preferred_elections,
    shut_down,
)
from odradek.controller.partition_creation import NewPartitions, plan_partitions
from odradek.controller.placement import ClusterLoad, Replicas, place
from odradek.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE, next_producer_id_block
from odradek.controller.reassign_partitions_request import ReassignPartitionsRequest
from odradek.controller.reassignment import (
    STEP_PARTITIONS,
    Assignment,
    ReassignmentPlan,
    ReassignmentStep,
    StopReplicas,
    advance,
    plan_reassignments,
    reassignments,
)
from odradek.controller.reassignment_proposals import DrainPlan, generate_assignment, plan_drain
from odradek.controller.state_change import StateChange
from odradek.controller.topic_creation import (
    MAX_PARTITIONS,
    ExistingTopicNames,
    NewTopic,
    PartitionLimit,
    TopicCreation,
    TopicPlan,
    plan_topic,
)
from odradek.controller.topic_deletion import TopicDeletion, deletion_operations

__all__ = [
    "MAX_PARTITIONS",
    "PRODUCER_ID_BLOCK_SIZE",
    "STEP_PARTITIONS",
    "AlterPartitionItem",
    "Assignment",
    "ClusterLoad",
    "ControlledShutdownPlan",
    "DrainPlan",
    "ElectionType",
    "ExistingTopicNames",
    "NewPartitions",
    "NewTopic",
    "PartitionLimit",
    "ReassignPartitionsRequest",
    "ReassignmentPlan",
    "ReassignmentStep",
    "Replicas",
    "StateChange",
    "StopReplicas",
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
    "next_producer_id_block",
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
