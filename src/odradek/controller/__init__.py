"""What the controller decides, as pure functions: an image of the cluster in, operations on the tree out.

Placement of new topics and of more partitions, their first states, leaders after a broker came or went or when somebody
asks, in-sync sets, reassignment, deletion, producer ids. `broker.controlling` reads, calls these, and writes, each time
with a check that it still is the controller; every decision is made from the tree alone, so that whatever a dead
controller left half done the next one finishes.
"""

from odradek.controller.creation import (
    MAX_PARTITIONS,
    NewTopic,
    RequestRoom,
    TakenNames,
    TopicCreation,
    TopicPlan,
    plan_topic,
)
from odradek.controller.deletion import TopicDeletion, deletion_operations
from odradek.controller.elections import elect, elections
from odradek.controller.expansion import NewPartitions, plan_partitions
from odradek.controller.initialization import initial_operations, needs_initialization
from odradek.controller.isr_changes import IsrWish, change_isr, check_broker_epoch, topic_of
from odradek.controller.leadership import (
    ControlledShutdown,
    ElectionType,
    elect_on_demand,
    grant_elections,
    rebalance,
    shut_down,
)
from odradek.controller.moves import Evacuation, evacuate, spread
from odradek.controller.placement import ClusterLoad, Replicas, place
from odradek.controller.producer_ids import PRODUCER_ID_BLOCK_SIZE, next_producer_id_block
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
from odradek.controller.reassignment_wishes import ReassignmentWishes
from odradek.controller.state_change import StateChange

__all__ = [
    "MAX_PARTITIONS",
    "PRODUCER_ID_BLOCK_SIZE",
    "STEP_PARTITIONS",
    "Assignment",
    "ClusterLoad",
    "ControlledShutdown",
    "ElectionType",
    "Evacuation",
    "IsrWish",
    "NewPartitions",
    "NewTopic",
    "ReassignmentPlan",
    "ReassignmentStep",
    "ReassignmentWishes",
    "Replicas",
    "RequestRoom",
    "StateChange",
    "StopReplicas",
    "TakenNames",
    "TopicCreation",
    "TopicDeletion",
    "TopicPlan",
    "advance",
    "change_isr",
    "check_broker_epoch",
    "deletion_operations",
    "elect",
    "elect_on_demand",
    "elections",
    "evacuate",
    "grant_elections",
    "initial_operations",
    "needs_initialization",
    "next_producer_id_block",
    "place",
    "plan_partitions",
    "plan_reassignments",
    "plan_topic",
    "reassignments",
    "rebalance",
    "shut_down",
    "spread",
    "topic_of",
]
