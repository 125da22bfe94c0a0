"""Encodes requests and responses from dicts, one for all versions, and decodes them to kio's dataclasses.

Schemas are kio's, generated from Kafka's message definitions; `controller_messages` has those that kio lacks. `encoder`
and `decoder` compile codecs from schemas; `message_codec` uses them by API and version. Produce and Fetch, most of the
traffic, have hand-written codecs.
`fetch_session` holds what consumers and followers keep of a fetch session.
"""
