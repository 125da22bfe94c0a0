"""Turns messages about a group into sentences, and keeps what a newcomer needs of their fields."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from odradek.lab.group_members import TreeRequest
from odradek.lab.player.steps import Message
from odradek.metadata.paths import name_of
from odradek.metadata.store import Create, Delete
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.consumer_protocol import decode_assignment, decode_subscription
from odradek.simulation.virtual.message_tap import TappedRequest

APIS: Final = {
    ApiKey.FIND_COORDINATOR: "FindCoordinator",
    ApiKey.JOIN_GROUP: "JoinGroup",
    ApiKey.SYNC_GROUP: "SyncGroup",
    ApiKey.HEARTBEAT: "Heartbeat",
    ApiKey.LEAVE_GROUP: "LeaveGroup",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "ConsumerGroupHeartbeat",
    ApiKey.OFFSET_FETCH: "OffsetFetch",
    ApiKey.OFFSET_COMMIT: "OffsetCommit",
}
READER: Final = "reader"
"""The client id of the consumer without a group."""
READER_APIS: Final = {ApiKey.METADATA: "Metadata", ApiKey.FETCH: "Fetch"}
WAITING: Final = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP)
"""APIs whose request and response are steps of their own, because the coordinator may let the member wait."""
_LEAVING_EPOCH: Final = -1
_WORDS: Final = {
    "REBALANCE_IN_PROGRESS": "a rebalance has begun, and it must join again",
    "UNKNOWN_MEMBER_ID": "it is no longer a member, and must join as a new one",
    "FENCED_MEMBER_EPOCH": "its epoch is not valid any more, and it must join again",
    "ILLEGAL_GENERATION": "its generation is over, and it must join again",
    "NOT_COORDINATOR": "this broker is not the coordinator, and it must find the new one",
    "COORDINATOR_NOT_AVAILABLE": "there is no coordinator yet, and it must try again",
    "COORDINATOR_LOAD_IN_PROGRESS": "the coordinator is still reading the groups from the log, and it must try again",
}


class Said(Struct, frozen=True, kw_only=True):
    """A message in words. `is_routine` if it changes nothing: it is folded with its like."""

    text: str
    message: Message
    is_routine: bool = False


class Words:
    """The sentences of one group; it learns which member id belongs to which client."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._joined: set[str] = set()
        self._coordinators: dict[str, str] = {}
        self._errors: dict[tuple[str, str], str] = {}
        """The error of a member's last request to an API: its repetitions are routine."""
        self._read: dict[ApiKey, str] = {}
        """The sentence of the reader's last request to an API."""

    def named(self, text: str) -> str:
        """Return a text with clients' names instead of their member ids."""
        for member_id, name in self._names.items():
            text = text.replace(member_id, name)
        return text

    def request(self, request: TappedRequest, host: str) -> Said:
        member, message = request.client_id, request.message
        if request.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            self._names[message.member_id] = member
        text, fields = f"{member} sends {APIS[request.api]} to {host}", dict[str, object]()
        if request.api is ApiKey.JOIN_GROUP:
            owned = _owned_before(message.protocols)
            fields = {"member_id": self._name(message.member_id) or "none", "protocol": message.protocols[0].name}
            fields["owned"] = numbers(owned)
            text = f"{member} sends JoinGroup to {host}, to join" + (
                " again" if member in self._joined else " the group"
            )
            text += f"; it keeps {_partitions(owned)} meanwhile" if owned else ""
        elif request.api is ApiKey.SYNC_GROUP:
            shares = {
                self._name(each.member_id): numbers(
                    place.partition for place in decode_assignment(each.assignment).partitions
                )
                for each in message.assignments
            }
            fields = {"generation_id": message.generation_id, **shares}
            if shares:
                text = f"{member}, the leader, has computed the assignment and sends it to {host}"
            else:
                text = f"{member} requests its partitions from {host}"
        elif request.api is ApiKey.LEAVE_GROUP:
            text = f"{member} sends LeaveGroup to the coordinator, {host}"
        return Said(text=text, message=_message(request, member, host, fields))

    def response(self, request: TappedRequest, response: Any, host: str) -> Said:
        """Return a response in words, with its request's main fields if that is no step of its own."""
        member, asked = request.client_id, request.message
        error = _error(request.api, response)
        name = APIS[request.api]
        if error:
            reason = _WORDS.get(error, "it cannot go on with this")
            text = f"{host} answers {member}'s {name} with {error}: {reason}"
            if error == "MEMBER_ID_REQUIRED":
                self._names[response.member_id] = member
                text = f"{host} assigns {member} a member id, with which it must join again"
            message = _message(request, host, member, {}, error=error, is_response=True)
            is_routine = self._errors.get((member, name)) == error
            self._errors[member, name] = error
            return Said(text=text, message=message, is_routine=is_routine)
        self._errors.pop((member, name), None)
        text, fields, is_routine = f"{host} answers {member}'s {name}", dict[str, object](), False
        if request.api is ApiKey.JOIN_GROUP:
            self._joined.add(member)
            self._names[response.member_id] = member
            fields = {"generation_id": response.generation_id, "leader": self._name(response.leader)}
            fields |= {"members": len(response.members)} if response.members else {}
            text = f"generation {response.generation_id} has begun for {member}; " + (
                "as the leader, it receives the list of all members"
                if response.members
                else f"the leader is {fields['leader']}"
                if response.leader
                else "it has no leader, because the coordinator assigns"
            )
        elif request.api is ApiKey.SYNC_GROUP:
            share = [place.partition for place in decode_assignment(response.assignment).partitions]
            fields = {"assignment": numbers(share)}
            text = f"{host} assigns {_partitions(share)} to {member}"
        elif request.api is ApiKey.HEARTBEAT:
            is_routine = True
        elif request.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            text, fields, is_routine = _consumer_heartbeat(member, host, asked, response)
        elif request.api is ApiKey.FIND_COORDINATOR:
            found = response.coordinators[0]
            fields = {"coordinator": found.host}
            is_routine = self._coordinators.get(member) == found.host
            self._coordinators[member] = found.host
            text = f"{member} requests its group's coordinator from {host}: it is {found.host}"
        elif request.api is ApiKey.OFFSET_FETCH:
            text, is_routine = f"{member} reads its partitions' committed offsets", True
        elif request.api is ApiKey.OFFSET_COMMIT:
            text, is_routine = f"{member} commits its offsets", True
        elif request.api is ApiKey.LEAVE_GROUP:
            text = f"{host} confirms that {member} has left"
        return Said(
            text=text,
            message=_message(request, host, member, fields, is_response=True),
            is_routine=is_routine,
        )

    def reader(self, request: TappedRequest, response: Any, host: str) -> Said:
        """Return a response to the consumer without a group in words."""
        fields: dict[str, object]
        if request.api is ApiKey.METADATA:
            leaders = [each.leader_id for topic in response.topics for each in topic.partitions[:1]]
            fields, error = {"leader": f"broker-{leaders[0]}"} if leaders else {}, ""
            found = f"broker-{leaders[0]} leads partition 0" if leaders else "it receives the list of brokers"
            text = f"{READER} requests the metadata from {host}: {found}"
        else:
            partition = next(each for topic in response.responses for each in topic.partitions)
            offset = next(each.fetch_offset for topic in request.message.topics for each in topic.partitions)
            count = sum(header.record_count for _, header in iterate_batches(memoryview(partition.records or b"")))
            fields = {"partition": partition.partition_index, "offset": offset, "records": count}
            error = "" if partition.error_code is ErrorCode.none else partition.error_code.name.upper()
            found = f"{error}, so it looks for the leader again" if error else f"{count} messages"
            text = f"{READER} fetches partition 0 from offset {offset} at {host}: {found}"
        is_routine = text == self._read.get(request.api)
        self._read[request.api] = text
        message = Message(
            api=READER_APIS[request.api],
            source=host,
            target=READER,
            fields=tuple((name, str(value)) for name, value in fields.items()),
            error=error,
            is_response=True,
        )
        return Said(text=text, message=message, is_routine=is_routine)

    def _name(self, member_id: str) -> str:
        return self._names.get(member_id, member_id)


def tree_words(request: TreeRequest) -> Said:
    """Return a member's request to the tree in words; reads are routine."""
    member = request.member
    paths = [*request.reads, *(each.path for each in request.operations)]
    shown = ("path" if len(paths) == 1 else "paths", ", ".join(paths[:3]) + (", …" if len(paths) > 3 else ""))
    if not request.operations:
        message = Message(api="read", source=member, target="zookeeper", fields=(shown,))
        return Said(text=f"{member} reads the tree", message=message, is_routine=True)
    first = request.operations[0]
    api = {Create: "create", Delete: "delete"}.get(type(first), "write")
    message = Message(api=api, source=member, target="zookeeper", fields=(shown,), error=request.error)
    owners = [
        int(name_of(each.path)) for each in request.operations if "/owners/" in each.path and _is_number(each.path)
    ]
    if request.is_claim and request.error:
        text = f"{member} cannot claim {_partitions(owners)}: another member still holds one of them. It tries again"
    elif request.is_claim:
        text = f"{member} claims {_partitions(owners)}: it creates their ephemeral znodes"
    elif owners:
        text = f"{member} deletes its claims of {_partitions(owners)}"
    elif "/ids/" in first.path and isinstance(first, Create | Delete):
        text = f"{member} {api}s its own znode in the tree: the watches of all other members fire"
    else:
        return Said(text=f"{member} keeps its group's znodes", message=message, is_routine=True)
    if request.error and not request.is_claim:
        text += f": {request.error}"
    return Said(text=text, message=message)


def numbers(partitions: Iterable[int]) -> str:
    """Return partition numbers as a list, or `none`."""
    return ", ".join(map(str, sorted(partitions))) or "none"


def _partitions(partitions: Sequence[int]) -> str:
    if not partitions:
        return "no partition"
    return f"partition{'' if len(partitions) == 1 else 's'} {numbers(partitions)}"


def _is_number(path: str) -> bool:
    return name_of(path).isdecimal()


def _consumer_heartbeat(member: str, host: str, asked: Any, response: Any) -> tuple[str, dict[str, object], bool]:
    owned = [number for topic in asked.topic_partitions or () for number in topic.partitions]
    fields: dict[str, object] = {"member_epoch": f"{asked.member_epoch} → {response.member_epoch}"}
    if asked.topic_partitions is not None and asked.member_epoch > 0:
        fields["owned"] = numbers(owned)
    if asked.member_epoch == _LEAVING_EPOCH:
        return f"{member} leaves with its last heartbeat to {host}", fields, False
    text = f"{member} joins with its first heartbeat to {host}" if asked.member_epoch == 0 else ""
    if not text and asked.topic_partitions is not None:
        text = f"{member} reports to {host} that it holds {_partitions(owned)}"
    if response.assignment is not None:
        given = [number for topic in response.assignment.topic_partitions for number in topic.partitions]
        fields["assignment"] = numbers(given)
        text += ("; " if text else "") + f"{host} assigns {_partitions(given)} to {member}"
    elif not text and response.member_epoch != asked.member_epoch:
        text = f"{host} moves {member} to epoch {response.member_epoch}"
    return text or f"{member} sends a heartbeat", fields, not text


def _owned_before(protocols: Sequence[Any]) -> list[int]:
    owned = {place.partition for each in protocols for place in decode_subscription(each.metadata).owned_partitions}
    return sorted(owned)


def _error(api: ApiKey, response: Any) -> str:
    """Return the name of a response's first error; empty if it has none."""
    codes = [getattr(response, "error_code", ErrorCode.none)]
    if api is ApiKey.FIND_COORDINATOR and hasattr(response, "coordinators"):
        codes += [each.error_code for each in response.coordinators]
    elif api is ApiKey.OFFSET_FETCH:
        codes += [each.error_code for each in getattr(response, "groups", ())]
    elif api is ApiKey.OFFSET_COMMIT:
        codes += [each.error_code for topic in response.topics for each in topic.partitions]
    elif api is ApiKey.LEAVE_GROUP:
        codes += [each.error_code for each in getattr(response, "members", ())]
    return next((code.name.upper() for code in codes if code is not ErrorCode.none), "")


def _message(
    request: TappedRequest,
    source: str,
    target: str,
    fields: dict[str, object],
    *,
    error: str = "",
    is_response: bool = False,
) -> Message:
    return Message(
        api=APIS[request.api],
        source=source,
        target=target,
        fields=tuple((name, str(value)) for name, value in fields.items()),
        error=error,
        is_response=is_response,
    )


def leader_words(before: dict[str, str], after: dict[str, str]) -> str:
    """Return what has changed, by new leader."""
    changed: dict[str, list[str]] = {}
    for name, host in after.items():
        if host != before[name]:
            changed.setdefault(host, []).append(name)
    sentences = []
    for host, names in sorted(changed.items()):
        if some := [name for name in names if name.isdecimal()]:
            led = f"partition{'s' if len(some) > 1 else ''} {', '.join(some)}"
            sentences.append(f"{host} leads {led}" if host else f"no broker leads {led}")
        if "coordinator" in names:
            sentences.append(f"{host} is the group's coordinator" if host else "the group has no coordinator")
    return "; ".join(sentences)


def owner_words(before: dict[int, str], after: dict[int, str]) -> str:
    """Return who got and who lost which partitions."""
    gets: dict[str, list[int]] = {}
    loses: dict[str, list[int]] = {}
    for number in sorted({*before, *after}):
        old, new = before.get(number), after.get(number)
        if old != new:
            if old is not None:
                loses.setdefault(old, []).append(number)
            if new is not None:
                gets.setdefault(new, []).append(number)
    parts = [f"{name} stops reading {numbers(some)}" for name, some in sorted(loses.items())]
    parts += [f"{name} reads {numbers(some)}" for name, some in sorted(gets.items())]
    return "; ".join(parts)
