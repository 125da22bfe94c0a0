"""Requests that existing clients sent: our codecs read and write them as those clients do."""

import pytest

from conformance.fuzz.client_requests import recorded
from conformance.fuzz.schema_samples import plain
from odradek.protocol.messages.headers import decode_request_header, encode_request_header
from odradek.protocol.messages.message_codec import decode_request, encode_request


@pytest.mark.parametrize("client", recorded())
def test_a_request_of_an_existing_client_is_the_same_when_it_is_written_again(client: str) -> None:
    for frame in recorded()[client]:
        header = decode_request_header(frame)
        message = plain(decode_request(header.api_key, header.api_version, frame, header.body_offset))
        again = encode_request_header(header.api_key, header.api_version, header.correlation_id, header.client_id)
        assert again + encode_request(header.api_key, header.api_version, message) == frame, header
