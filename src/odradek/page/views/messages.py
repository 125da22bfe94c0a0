"""The views of messages: newest first or from a position, a search that shows how far it is, one message, exports."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from odradek.clients import ConsumerRecord, SimpleConsumer
from odradek.model import ConfigurationError, validate_topic_name
from odradek.model.texts import several_lines
from odradek.page.messages.decoding import GUESS, PLAIN_FORMATS, Decoded
from odradek.page.messages.export import EXPORTS
from odradek.page.messages.masking import MASKED, Masks
from odradek.page.messages.reading import (
    MOST_LIMIT,
    Entry,
    Marker,
    Progress,
    Query,
    Shortened,
    Unreadable,
    check_partition,
    header_text,
    masked_record,
    place_of,
    record_bytes,
    scan,
    shown,
    text_of,
)
from odradek.page.view import Action, Done, Page, PageRequest, View
from odradek.values.value_formats import bytes_of_text

_PREVIEW_BYTES: Final = 4 << 10
"""The beginning of a key or value that a list shows; the whole message has a page of its own."""
_WHOLE_BYTES: Final = 1 << 20
_PREVIEW_HEADERS: Final = 20
_WHOLE_HEADERS: Final = 1_000
_FIRST_READ: Final = 20_000
"""Messages that a search reads before the page is shown; a browser with scripts shows the rest as it is read."""
_MOST_SEARCHED: Final = 10_000_000
_MOST_SAVED_BYTES: Final = 64 << 20
"""Size limit of the messages in a saved file, which is made in memory."""
_MOST_OF_NAME: Final = 100
"""Limit of the characters that name batches."""
_FIELDS: Final = ("partition", "from", "key", "text", "regex", "key_format", "value_format", "limit")
_PRODUCED_FORMATS: Final = ("text", "json", "base64", "null")


class Row(Shortened, frozen=True, kw_only=True):
    """A message as it is shown."""

    key: Decoded
    value: Decoded
    headers: Sequence[tuple[str, str]]
    header_count: int
    leader_epoch: int
    timestamp_type: int
    """0 if the producer set the timestamp, 1 if the broker did."""
    is_cut: bool
    """Whether there is more than is shown."""
    can_download: bool = True


class MessagesPage(Struct, frozen=True, kw_only=True):
    """The data of a list of messages or of a search."""

    topic: str
    query: Query
    fields: Mapping[str, str]
    """The fields of the form."""
    rows: Sequence[Shortened | Marker | Unreadable]
    progress: Progress
    formats: Sequence[str]
    address: str
    """The address of the next messages; "" at the end."""

    @property
    def messages(self) -> int:
        """The offsets of the topic's partitions that are in use."""
        return sum(end - self.progress.starts[number] for number, end in self.progress.ends.items())

    def export_address(self, name: str) -> str:
        return f"/topics/{quote(self.topic, safe='')}/export?" + _encoded({**self.fields, "as": name})


async def messages(asked: PageRequest) -> MessagesPage | Response:
    """Return messages: the newest, or those from a position or a cursor; with a key or a text, go on to the search."""
    query = _query(asked)
    if query.is_search:
        return RedirectResponse(f"/topics/{quote(query.topic, safe='')}/search?{_encoded(asked.query)}", 303)
    return await _first(asked, query)


async def search(asked: PageRequest) -> MessagesPage:
    query = _query(asked, most_read=_FIRST_READ)
    if not query.is_search:
        raise ConfigurationError("a search needs a key or a text")
    return await _first(asked, query)


async def searched(asked: PageRequest) -> AsyncIterator[MessagesPage]:
    query = _query(asked, most_read=_MOST_SEARCHED)
    async for progress in _scan(asked, query, partial(_row, asked)):
        yield _page(asked, query, progress)


async def message(asked: PageRequest) -> Row | Response:
    """Return one whole message, or the bytes of its key or value as a file."""
    topic, partition, offset = asked.path["topic"], _number(asked, "partition"), _number(asked, "offset")
    consumer = await _consumer(asked)
    check_partition(topic, partition, await consumer.partitions_for_topic(topic))
    record = await _record(consumer, topic, partition, offset)
    if record is None:
        raise ConfigurationError(
            f"{topic}-{partition} has no message at the offset {offset}: it is the place of a transaction's marker, "
            "or compaction has removed the message"
        )
    if (part := asked.query.get("download", "")) in {"key", "value"}:
        if _masks(asked):
            raise ConfigurationError("messages are masked on this page, so their bytes cannot be downloaded")
        name = f"{topic}-{partition}-{offset}.{part}"
        return _file(getattr(record, part) or b"", name, "application/octet-stream")
    return _row(asked, record, most_bytes=_WHOLE_BYTES, most_headers=_WHOLE_HEADERS)


async def export(asked: PageRequest) -> Response:
    """Return a file of the messages that the query finds; its name has the batches that cannot be read."""
    chosen = EXPORTS.get(asked.query.get("as", ""))
    if chosen is None:
        raise ConfigurationError(f"messages are exported as one of {', '.join(EXPORTS)}")
    query, masks = _query(asked), _masks(asked)
    consumer = await _consumer(asked)
    found: Sequence[Entry] = ()
    async for progress in _scan(asked, query):
        found = progress.found
    records, size, gaps = [], 0, ""
    for each in found:
        if isinstance(each, Unreadable):
            gaps += (
                f" without partition {each.partition} offsets {each.offset}-{each.last}"
                if len(gaps) < _MOST_OF_NAME
                else ""
            )
        if isinstance(each, Marker | Unreadable):
            continue
        record: ConsumerRecord | None
        if isinstance(each, ConsumerRecord):
            record = each
        else:
            record = await _record(consumer, each.topic, each.partition, each.offset)
        if record is None:
            continue  # retention has deleted it meanwhile
        size += record_bytes(record)
        if size > _MOST_SAVED_BYTES:
            raise ConfigurationError(
                f"these messages have more than {_MOST_SAVED_BYTES >> 20} MiB: save fewer, with &limit=N in the address"
            )
        records.append(masked_record(record, masks))
    content = chosen.make(records)
    return _file(content, f"{query.topic}{gaps}.{chosen.ending}", chosen.media_type)


async def produce_form(asked: PageRequest) -> Mapping[str, Any]:
    """Return what the form needs that writes a message."""
    consumer = await _consumer(asked)
    topic = asked.path["topic"]
    return {"topic": topic, "partitions": await consumer.partitions_for_topic(topic), "formats": _PRODUCED_FORMATS}


async def produce(asked: PageRequest) -> Done:
    from odradek.clients import Producer  # imported here: most pages send nothing

    topic, form = asked.path["topic"], asked.form
    key, value = (_bytes(form, name) for name in ("key", "value"))
    if key is None and value is None:
        raise ConfigurationError("a message needs a key or a value")
    number = asked.number("partition", -1, most=2**31 - 1)
    partition = None if number < 0 else number
    async with Producer(**asked.session.client) as producer:
        sent = await (await producer.send(topic, value, key, partition=partition, headers=_headers(form)))
    address = f"/topics/{quote(topic, safe='')}/messages/{sent.partition}/{sent.offset}"
    return Done(address=address, message=f"The message is in partition {sent.partition}, at offset {sent.offset}.")


# ---- helper functions -----------------------------------------------------------------------------------------------


async def _consumer(asked: PageRequest) -> SimpleConsumer:
    """Return the session's consumer. Raises `KafkaError` at once for an unknown topic; a consumer waits for one."""
    await (await asked.admin()).describe_topics([validate_topic_name(asked.path["topic"])])
    return await asked.session.consumer()


async def _scan(
    asked: PageRequest, query: Query, shorten: Callable[[ConsumerRecord], Shortened] = place_of
) -> AsyncIterator[Progress]:
    consumer, reading, worker = await _consumer(asked), asked.session.reading, asked.runtime.worker
    async for progress in scan(consumer, query, _masks(asked), shorten, reading=reading, worker=worker):
        yield progress


async def _record(consumer: SimpleConsumer, topic: str, partition: int, offset: int) -> ConsumerRecord | None:
    fetched = await consumer.fetch((topic, partition), offset, max_bytes=1, max_wait_ms=0)  # only its batch
    return next((each for each in fetched.records if each.offset == offset), None)


async def _first(asked: PageRequest, query: Query) -> MessagesPage:
    async for progress in _scan(asked, query, partial(_row, asked)):
        last = progress
    return _page(asked, query, last)


def _page(asked: PageRequest, query: Query, progress: Progress) -> MessagesPage:
    fields = {name: asked.query.get(name, "") for name in _FIELDS}
    address = asked.address.partition("?")[0]
    return MessagesPage(
        topic=query.topic,
        query=query,
        fields=fields,
        rows=[_row(asked, each) if isinstance(each, ConsumerRecord) else each for each in progress.found],
        progress=progress,
        formats=(*PLAIN_FORMATS, *asked.settings.schemas),
        address=f"{address}?{_encoded({**fields, 'cursor': progress.cursor})}" if progress.cursor else "",
    )


def _query(asked: PageRequest, *, most_read: int = 100_000) -> Query:
    fields = asked.query
    partitions = [each for each in fields.get("partition", "").replace(" ", "").split(",") if each]
    if not all(each.isdecimal() and len(each) < 10 for each in partitions):
        raise ConfigurationError("partitions are numbers, such as 0,3; nothing means all")
    return Query(
        topic=validate_topic_name(asked.path["topic"]),
        partitions=tuple(sorted({int(each) for each in partitions})),
        start=fields.get("from", "").strip(),
        cursor=fields.get("cursor", ""),
        key=fields.get("key") or None,
        contains=fields.get("text", ""),
        is_pattern=bool(fields.get("regex")),
        limit=asked.number("limit", 50, least=1, most=MOST_LIMIT),
        most_read=most_read,
    )


def _encoded(fields: Mapping[str, str]) -> str:
    return urlencode({name: text for name, text in fields.items() if text})


def _masks(asked: PageRequest) -> Masks:
    return Masks(asked.settings.masks, with_schema=asked.settings.formats)


def _row(
    asked: PageRequest,
    record: ConsumerRecord,
    *,
    most_bytes: int = _PREVIEW_BYTES,
    most_headers: int = _PREVIEW_HEADERS,
) -> Row:
    masks, schemas = _masks(asked), asked.settings.schemas

    def decoded(name: str, data: bytes | None) -> tuple[Decoded, bool]:
        own = asked.settings.formats.get(f"{record.topic}.{name}", GUESS)
        chosen = asked.query.get(f"{name}_format") or own
        if chosen not in PLAIN_FORMATS and chosen not in schemas:
            raise ConfigurationError(f"there is no format {chosen[:40]!r}")
        if masks and (own in schemas or chosen in schemas):
            chosen = own  # another schema may name the fields differently
        whole = shown(data, chosen, masks, schemas, most=most_bytes)
        if whole.error and masks.needs_schema(f"{record.topic}.{name}"):
            whole = Decoded(format=chosen, size_bytes=whole.size_bytes, text=MASKED)
        if len(whole.text) > most_bytes or (whole.has_tree and data is not None and len(data) > most_bytes):
            text = whole.text if whole.text else text_of(whole)
            return Decoded(
                format=whole.format, size_bytes=whole.size_bytes, text=text[:most_bytes] + "…", error=whole.error
            ), True
        return whole, False

    key, is_key_cut = decoded("key", record.key)
    value, is_value_cut = decoded("value", record.value)
    headers = [
        (several_lines(name)[:most_bytes], text[:most_bytes])
        for name, text in (
            masks.header(name, "null" if data is None else header_text(data))
            for name, data in record.headers[:most_headers]
        )
    ]
    return Row(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        value=value,
        headers=headers,
        header_count=len(record.headers),
        leader_epoch=record.leader_epoch,
        timestamp_type=record.timestamp_type,
        is_cut=is_key_cut or is_value_cut or len(record.headers) > most_headers,
        can_download=not masks,
    )


def _bytes(form: Mapping[str, str], name: str) -> bytes | None:
    text, form_format = form.get(name, ""), form.get(f"{name}_format", "text")
    if form_format == "null" or (name == "key" and not text):
        return None
    if form_format not in _PRODUCED_FORMATS:
        raise ConfigurationError(f"the format of the {name} is one of {', '.join(_PRODUCED_FORMATS)}")
    try:
        return bytes_of_text(form_format, text.encode())
    except ValueError as error:
        raise ConfigurationError(f"the {name} is not {form_format}: {error}") from None


def _headers(form: Mapping[str, str]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for line in form.get("headers", "").splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals:
                raise ConfigurationError(f"the header {line[:40]!r} is not NAME=VALUE")
            headers.append((name.strip(), value.encode()))
    return headers


def _number(asked: PageRequest, name: str) -> int:
    text = asked.path[name]
    if not text.isdecimal() or len(text) > 18:
        raise ConfigurationError(f"{text[:40]!r} is not the number of a {name}")
    return int(text)


def _file(content: bytes, name: str, media_type: str) -> Response:
    disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    return Response(content, media_type=media_type, headers={"content-disposition": disposition})


VIEW = View(
    title="",
    path="/topics",
    pages=(
        Page(path="/topics/{topic}/messages", template="messages.html", data=messages, live=("found",), interval_s=0.5),
        Page(path="/topics/{topic}/search", template="messages.html", data=search, updates=searched, live=("found",)),
        Page(path="/topics/{topic}/messages/{partition}/{offset}", template="message.html", data=message),
        Page(path="/topics/{topic}/export", template="messages.html", data=export),
        Page(path="/topics/{topic}/produce", template="produce.html", data=produce_form, operator=True),
    ),
    actions=(Action(path="/topics/{topic}/produce", act=produce),),
)
