"""Requests and responses: a message to send is a dict that fits every version, a received one is kio's dataclass.

Schemas are kio's (generated from Kafka's own message definitions), and `controller_messages` has those that kio lacks.
`encoder` and `decoder` compile codecs from them, and `message_codec` finds the one for an API and version. Four APIs
have hand-written codecs: Produce and Fetch, which are nearly all of the traffic, and ApiVersions and Metadata, which
every client needs first.
"""
