"""The decisions of Kafka's authorizer, as a table, and the validity of ACLs."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import KafkaError
from odradek.security import (
    AclAuthorizer,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermissionType,
    Acls,
    Action,
    AuthorizationResult,
    PatternType,
    Principal,
    Reason,
    ResourcePattern,
    ResourceType,
    by_kafka_name,
    parse_principal,
)

ALICE: Final = Principal("User", "alice")


class Context(NamedTuple):
    principal: Principal = ALICE
    client_host: str = "10.0.0.1"
    listener: str = "SASL"


def pattern(text: str) -> ResourcePattern:
    """Parse `topic t`, or `topic t-*` for a prefix; `topic *` is the literal wildcard."""
    kind, name = text.split()
    if name.endswith("*") and len(name) > 1:
        return ResourcePattern(ResourceType[kind.upper()], name[:-1], PatternType.PREFIXED)
    return ResourcePattern(ResourceType[kind.upper()], name)


def acls(*lines: str) -> Acls:
    """Parse lines such as `allow alice read topic t` and `deny * all topic t-* from 10.0.0.1`."""
    found: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
    for line in lines:
        text, _, host = line.partition(" from ")
        permission, user, operation, resource = text.split(maxsplit=3)
        entry = AclEntry(
            principal=user if ":" in user else f"User:{user}",
            host=host or "*",
            operation=AclOperation[operation.upper()],
            permission_type=AclPermissionType[permission.upper()],
        )
        found[pattern(resource)] = (*found.get(pattern(resource), ()), entry)
    return found


def authorizer(*lines: str, allow_everyone: bool = False) -> AclAuthorizer:
    created = AclAuthorizer(super_users=frozenset({Principal("User", "root")}), allow_everyone=allow_everyone)
    created.update(acls(*lines))
    return created


def may(rules: AclAuthorizer, operation: str, resource: str, user: str = "alice", host: str = "10.0.0.1") -> bool:
    action = Action(AclOperation[operation.upper()], pattern(resource))
    (result,) = rules.authorize(Context(Principal("User", user), host), [action])
    return result is AuthorizationResult.ALLOWED


@pytest.mark.parametrize(
    ("lines", "operation", "resource", "expected"),
    [
        ((), "read", "topic t", False),
        (("allow alice read topic t",), "read", "topic t", True),
        (("allow alice read topic t",), "write", "topic t", False),
        (("allow alice read topic t",), "read", "topic t2", False),
        (("allow alice read topic t",), "read", "group t", False),
        (("allow bob read topic t",), "read", "topic t", False),
        (("allow * read topic t",), "read", "topic t", True),
        (("allow alice all topic t",), "alter_configs", "topic t", True),
        (("allow alice all topic *",), "read", "topic anything", True),
        (("allow alice read topic *",), "read", "group g", False),
        # hosts
        (("allow alice read topic t from 10.0.0.1",), "read", "topic t", True),
        (("allow alice read topic t from 10.0.0.2",), "read", "topic t", False),
        (("allow alice read topic t", "deny alice read topic t from 10.0.0.1"), "read", "topic t", False),
        (("allow alice read topic t", "deny alice read topic t from 10.0.0.2"), "read", "topic t", True),
        # prefixes
        (("allow alice read topic t-*",), "read", "topic t-", True),
        (("allow alice read topic t-*",), "read", "topic t-1", True),
        (("allow alice read topic t-*",), "read", "topic t", False),
        (("allow alice read topic t-*",), "read", "topic u-1", False),
        (("allow bob read topic t-*", "allow alice read topic t-1-*"), "read", "topic t-1-2", True),
        (("allow alice read topic a*", "allow alice write topic ab*"), "read", "topic abc", True),
        # DENY before ALLOW, wherever they are
        (("allow alice read topic t", "deny alice read topic t"), "read", "topic t", False),
        (("deny alice read topic *", "allow alice read topic t"), "read", "topic t", False),
        (("deny alice read topic t", "allow alice read topic *"), "read", "topic t", False),
        (("deny alice read topic t*", "allow alice read topic t-1"), "read", "topic t-1", False),
        (("deny * all topic t", "allow alice all topic t"), "read", "topic t", False),
        (("deny alice write topic t", "allow alice read topic t"), "read", "topic t", True),
        (("deny alice all topic t", "allow alice describe topic t"), "describe", "topic t", False),
        # what an operation implies
        (("allow alice read topic t",), "describe", "topic t", True),
        (("allow alice write topic t",), "describe", "topic t", True),
        (("allow alice delete topic t",), "describe", "topic t", True),
        (("allow alice alter topic t",), "describe", "topic t", True),
        (("allow alice create topic t",), "describe", "topic t", False),
        (("allow alice alter_configs topic t",), "describe_configs", "topic t", True),
        (("allow alice alter_configs topic t",), "describe", "topic t", False),
        (("allow alice alter topic t",), "describe_configs", "topic t", False),
        (("allow alice describe topic t",), "read", "topic t", False),
        (("deny alice read topic t", "allow alice describe topic t"), "describe", "topic t", True),
        (("deny alice describe topic t", "allow alice read topic t"), "describe", "topic t", False),
        (("deny alice describe topic t", "allow alice read topic t"), "read", "topic t", True),
        # principals of another type
        (("allow Group:alice read topic t",), "read", "topic t", False),
    ],
)
def test_the_decision_is_kafkas(lines: tuple[str, ...], operation: str, resource: str, *, expected: bool) -> None:
    assert may(authorizer(*lines), operation, resource) is expected


def test_a_super_user_may_do_everything_before_the_acls_are_read_and_others_nothing() -> None:
    rules = AclAuthorizer(super_users=frozenset({Principal("User", "root")}), allow_everyone=True)
    for _ in range(2):
        assert may(rules, "read", "topic t", "root")
        assert not may(rules, "read", "topic t")
        assert by_type(rules, "root")
        assert not by_type(rules)
        rules.update(None)
    rules.update(acls("deny root all topic t"))
    assert may(rules, "read", "topic t", "root")


def test_everyone_may_use_a_resource_without_acls_if_the_key_allows_it() -> None:
    rules = authorizer("allow bob write topic t", "allow bob read topic p-*", allow_everyone=True)
    assert may(rules, "read", "topic other")
    assert may(rules, "read", "group t")
    assert not may(rules, "read", "topic t")
    assert not may(rules, "read", "topic p-1")
    assert not may(authorizer("allow bob read topic *", allow_everyone=True), "read", "topic other")


def by_type(rules: AclAuthorizer, user: str = "alice", operation: AclOperation = AclOperation.WRITE) -> bool:
    context = Context(Principal("User", user))
    return rules.authorize_by_resource_type(context, operation, ResourceType.TOPIC) is AuthorizationResult.ALLOWED


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), False),
        (("allow alice write topic t",), True),
        (("allow alice read topic t",), False),
        (("allow alice write group t",), False),
        (("allow * all topic t-*",), True),
        (("allow alice write topic t from 10.0.0.2",), False),
        (("allow alice write topic t", "deny alice write topic t"), False),
        (("allow alice write topic t", "allow alice write topic u", "deny alice write topic t"), True),
        (("allow alice write topic t", "deny * write topic *"), False),
        (("allow alice write topic t-1", "deny alice all topic t*"), False),
        (("allow alice write topic t-1*", "deny alice all topic t*"), False),
        (("allow alice write topic t*", "deny alice all topic t-1*"), True),
        (("allow alice write topic t*", "deny alice write topic t"), True),
        (("allow alice write topic *", "deny alice write topic t"), True),
    ],
)
def test_a_principal_may_write_some_topic_if_no_deny_covers_its_allows(
    lines: tuple[str, ...], *, expected: bool
) -> None:
    rules = authorizer(*lines)
    assert [by_type(rules) for _ in range(2)] == [expected, expected]
    rules.update(acls("allow alice write topic other"))
    assert by_type(rules), "decisions are not remembered across changes"


@given(st.lists(st.tuples(st.booleans(), st.text("ab*", min_size=1, max_size=4), st.booleans()), max_size=8))
def test_a_principal_may_write_some_topic_if_one_of_its_allows_is_not_covered(
    lines: list[tuple[bool, str, bool]],
) -> None:
    found: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
    for denies, name, is_prefix in lines:
        key = ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED if is_prefix else PatternType.LITERAL)
        permission = AclPermissionType.DENY if denies else AclPermissionType.ALLOW
        entry = AclEntry(principal="User:alice", operation=AclOperation.WRITE, permission_type=permission)
        found[key] = (*found.get(key, ()), entry)
    rules = AclAuthorizer()
    rules.update(found)
    denied = [(name, is_prefix) for denies, name, is_prefix in lines if denies]
    expected = ("*", False) not in denied and any(
        not denies
        and not any(
            name.startswith(other) if covers else (name, is_prefix) == (other, False) for other, covers in denied
        )
        for denies, name, is_prefix in lines
    )
    assert by_type(rules) is expected


class CountedName(str):
    """A name that counts the names with which it is compared."""

    __slots__ = ()
    compared: ClassVar[int] = 0

    def __lt__(self, other: str) -> bool:
        CountedName.compared += 1
        return str(self) < str(other)

    def startswith(self, prefix: str | tuple[str, ...], *where: Any) -> bool:
        CountedName.compared += 1 if isinstance(prefix, str) else len(prefix)
        return str(self).startswith(prefix, *where)


def test_many_denied_prefixes_are_not_compared_with_each_allowed_one() -> None:
    entries = [
        AclEntry(principal="User:alice", operation=AclOperation.WRITE, permission_type=each)
        for each in (AclPermissionType.DENY, AclPermissionType.ALLOW)
    ]
    found = {
        ResourcePattern(ResourceType.TOPIC, CountedName(f"{number:04}{suffix}"), PatternType.PREFIXED): (entry,)
        for suffix, entry in zip(("", "x"), entries, strict=True)
        for number in range(1000)
    }
    rules = AclAuthorizer()
    rules.update(found)
    CountedName.compared = 0
    assert not by_type(rules)
    assert 1000 < CountedName.compared < 40_000


def test_a_decision_does_not_look_at_the_acls_of_each_host() -> None:
    rules = authorizer(
        *(f"allow alice read topic * from 10.0.{number // 256}.{number % 256}" for number in range(1000))
    )
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        is_allowed = may(rules, "read", "topic t", host="10.0.3.231")
    finally:
        sys.settrace(before)
    assert is_allowed
    assert 10 < lines < 200


def test_a_host_may_be_written_as_java_writes_addresses() -> None:
    rules = authorizer("allow alice read topic t", "deny alice read topic t from 0:0:0:0:0:0:0:1")
    assert not may(rules, "read", "topic t", host="::1")
    assert may(rules, "read", "topic t", host="::2")


def test_a_decision_names_the_acl_that_decides() -> None:
    rules = authorizer("allow alice read topic t", "deny * write topic t-*", "allow alice write topic *")
    for operation, resource, reason, text in (
        ("read", "topic t", Reason.ALLOWED, "Allow User:alice Read from * on Topic:LITERAL:t"),
        ("write", "topic t-1", Reason.DENIED, "Deny User:* Write from * on Topic:PREFIXED:t-"),
        ("delete", "topic t", Reason.NO_MATCH, "None"),
        ("read", "group g", Reason.NO_ACLS, "None"),
    ):
        decision = rules.decide(ALICE, "h", Action(AclOperation[operation.upper()], pattern(resource)))
        assert (decision.reason, str(decision.binding)) == (reason, text)


def test_unchanged_acls_are_kept_by_an_update_and_the_version_grows() -> None:
    before = dict(acls("allow alice read topic t", "allow alice read topic u", "allow alice read topic p*"))
    rules = AclAuthorizer()
    rules.update(before)
    version = rules.version
    after = before | acls("allow bob read topic t")
    rules.update({each: after[each] for each in after if each.name != "u"})
    assert rules.version > version
    assert [may(rules, "read", f"topic {name}") for name in ("t", "u", "p1")] == [False, False, True]
    assert may(rules, "read", "topic t", "bob")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": ResourceType.ANY}, "a resource type, not ANY LITERAL"),
        ({"kind": ResourceType.UNKNOWN}, "not UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "not TOPIC MATCH"),
        ({"operation": AclOperation.ANY}, "ANY ALLOW is no operation"),
        ({"operation": AclOperation.UNKNOWN}, "UNKNOWN ALLOW"),
        ({"permission_type": AclPermissionType.ANY}, "READ ANY is no operation with ALLOW or DENY"),
        ({"name": ""}, "the resource name is empty"),
        ({"name": "a/b"}, "'a/b' cannot be a node"),
        ({"name": ".."}, "'..' cannot be a node"),
        ({"kind": ResourceType.CLUSTER}, "the only name of a CLUSTER resource is kafka-cluster, not t"),
        ({"host": ""}, "the host is empty"),
        ({"principal": "alice"}, "'alice' is not a principal: TYPE:NAME, for instance User:alice"),
        ({"principal": "User:"}, "'User:' is not a principal"),
    ],
)
def test_an_invalid_acl_is_refused_with_the_reason(change: dict[str, object], problem: str) -> None:
    parts: dict[str, object] = {"kind": ResourceType.TOPIC, "name": "t", "pattern_type": PatternType.LITERAL}
    entry: dict[str, object] = {"principal": "User:alice", "operation": AclOperation.READ}
    entry |= {name: value for name, value in change.items() if name not in parts}
    parts |= {name: value for name, value in change.items() if name in parts}
    binding = AclBinding(pattern=ResourcePattern(*parts.values()), entry=AclEntry(**entry))  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match=problem):
        binding.check()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ["topic *", "topic t", "topic t*", "topic tt*", "group t"]),
        (AclFilter(resource_type=ResourceType.GROUP), ["group t"]),
        (AclFilter(name="t"), ["topic t", "topic t*", "group t"]),
        (AclFilter(name="t", pattern_type=PatternType.LITERAL), ["topic t", "group t"]),
        (AclFilter(name="t", pattern_type=PatternType.PREFIXED), ["topic t*"]),
        (AclFilter(pattern_type=PatternType.PREFIXED), ["topic t*", "topic tt*"]),
        (AclFilter(name="tt1", pattern_type=PatternType.MATCH), ["topic *", "topic t*", "topic tt*"]),
        (AclFilter(name="t", pattern_type=PatternType.MATCH), ["topic *", "topic t", "topic t*", "group t"]),
        (AclFilter(name="*", pattern_type=PatternType.LITERAL), ["topic *"]),
    ],
)
def test_a_filter_matches_patterns_as_kafkas_does(wanted: AclFilter, found: list[str]) -> None:
    known = ("topic *", "topic t", "topic t*", "topic tt*", "group t")
    assert [each for each in known if wanted.matches_pattern(pattern(each))] == found


def test_a_filter_matches_entries_by_each_part() -> None:
    entry = AclEntry(principal="User:a", host="h", operation=AclOperation.READ)
    for name, same, other in (
        ("principal", "User:a", "User:b"),
        ("host", "h", "*"),
        ("operation", AclOperation.READ, AclOperation.ALL),
        ("permission_type", AclPermissionType.ALLOW, AclPermissionType.DENY),
    ):
        assert AclFilter(**{name: same}).matches_entry(entry)  # type: ignore[arg-type]
        assert not AclFilter(**{name: other}).matches_entry(entry)  # type: ignore[arg-type]
    assert AclFilter().matches_entry(entry)


def test_names_are_read_in_any_case_and_a_principal_may_have_colons() -> None:
    assert by_kafka_name(AclOperation, "ClusterAction") is AclOperation.CLUSTER_ACTION
    assert by_kafka_name(ResourceType, "TRANSACTIONAL_ID") is ResourceType.TRANSACTIONAL_ID
    assert by_kafka_name(AclOperation, "Fly") is None
    assert parse_principal("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")
