"""The caches of decisions in a broker and its clients, each with the test in which it is forgotten.

A cache that is not in this list has no such test: add both. The list names an attribute and the module that has it.
"""

import re
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

import odradek
from odradek.broker.log.log_config import TopicLogConfigs
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import TopicImage
from odradek.security import AclEntry, AclOperation, PatternType, ResourcePattern, ResourceType
from odradek.security.acl_authorizer import AclAuthorizer

_HERE: Final = "broker/test_caches.py"
CACHES: Final = [
    ("broker/serving/response_cache.py", "_responses", "broker/handlers/test_metadata.py",
     "test_the_same_question_is_answered_anew_when_the_cluster_has_changed"),
    ("broker/serving/response_cache.py", "_responses", "broker/security/test_admission.py",
     "test_cached_metadata_is_of_one_principal_and_one_version_of_the_rules"),
    ("broker/security/context.py", "allowed", "broker/security/test_postponed_requests.py",
     "test_a_session_remembers_what_it_may_read_until_the_rules_change_and_no_refusal"),
    ("broker/handlers/produce_fast_path.py", "_prefixes", "broker/security/test_acls.py",
     "test_a_producer_is_refused_as_soon_as_its_permission_is_revoked"),
    ("broker/handlers/produce_fast_path.py", "_limits", "broker/security/quotas/test_client_quotas.py",
     "test_the_fast_path_of_produce_throttles_by_the_quotas_of_the_moment"),
    ("broker/security/quotas/client_quotas.py", "_clients", "broker/security/quotas/test_client_quotas.py",
     "test_a_quota_that_is_removed_restores_a_muted_connection_at_once_and_a_new_one_counts_at_once"),
    ("security/acl_authorizer.py", "version", _HERE, "test_one_of_two_acls_of_a_pattern_is_removed"),
    ("broker/log/log_config.py", "_cache", _HERE, "test_a_changed_value_gives_another_configuration"),
    ("broker/serving/fetch_sessions.py", "targets", "broker/serving/test_fetch_sessions.py",
     "test_a_follower_gets_the_high_watermark_again_after_its_leader_epoch_changed"),
    ("metadata/acl_nodes.py", "_known", "broker/security/test_acls.py",
     "test_changes_are_seen_by_every_broker_within_a_second_and_after_a_failover"),
    ("clients/metadata.py", "leader_epoch", "clients/test_cluster_view.py",
     "test_metadata_with_an_older_leader_epoch_does_not_replace_the_leader"),
    ("clients/consumer/membership/classic_membership_manager.py", "coordinator",
     "clients/consumer/membership/test_classic_membership_manager.py",
     "test_a_member_whose_coordinator_moves_finds_the_new_one_and_stays"),
    ("clients/producer/transactions/coordinator_requests.py", "coordinator",
     "clients/producer/test_producer_transactions.py",
     "test_requests_to_coordinators_are_retried_and_the_coordinator_is_looked_up_again"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "file", "test"), CACHES)
def test_each_cache_has_a_test_of_being_forgotten(module: str, name: str, file: str, test: str) -> None:
    source = (Path(odradek.__file__).parent / module).read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", source), f"{module} has no {name}"
    assert re.search(rf"^(async )?def {test}\(", (Path(__file__).parents[1] / file).read_text(encoding="utf-8"), re.M)


def test_one_of_two_acls_of_a_pattern_is_removed() -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    read, write = (AclEntry(principal="User:a", operation=each) for each in (AclOperation.READ, AclOperation.WRITE))
    rules = AclAuthorizer()
    rules.update({pattern: (read, write)})
    version = rules.version
    rules.update({pattern: (read,)})
    assert rules.version > version, "what sessions, fast paths and cached responses compare with"


def test_a_changed_value_gives_another_configuration() -> None:
    configs, broker = TopicLogConfigs(), BrokerConfig.parse({"broker.id": "0", "log.dirs": "/data"})

    def retention_ms(value: str) -> int | None:
        topic = TopicImage(name="t", topic_id=UUID(int=1), partitions={}, config={"retention.ms": value})
        return configs.of("t", topic, broker).retention_ms

    assert [retention_ms(value) for value in ("1000", "2000", "1000")] == [1000, 2000, 1000]
