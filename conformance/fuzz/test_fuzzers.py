"""Every fuzzer for a bounded number of inputs, of a fixed seed; `make fuzz TARGET=… RUNS=…` runs one for longer."""

import pytest

from conformance.fuzz.client_requests import recorded
from conformance.fuzz.fuzz_engine import MODULES, check_all, examples, fuzz, load, reached
from conformance.fuzz.schema_samples import plain
from odradek.protocol.messages.headers import decode_request_header, encode_request_header
from odradek.protocol.messages.message_codec import decode_request, encode_request


@pytest.mark.parametrize("name", MODULES)
def test_output_of_our_own_encoders_passes(name: str) -> None:
    target = load(name)
    check_all(target, target.seeds())


@pytest.mark.parametrize("name", MODULES)
def test_inputs_like_those_run_most_of_what_is_fuzzed(name: str) -> None:
    target = load(name)
    for module, share in reached(target, examples(target)).items():
        assert share >= target.reaches[module], f"{share:.0%} of {module} were reached"


@pytest.mark.needs("atheris")
@pytest.mark.parametrize("name", MODULES)
def test_a_bounded_run_breaks_nothing_and_finds_new_paths(name: str) -> None:
    target = load(name)
    run = fuzz(name, runs=target.runs)
    assert run.failure is None, run.failure
    assert run.executed >= target.runs
    assert run.learned > 0, "nothing that it tried did anything new: is the product instrumented?"


# ---- Requests of existing clients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", recorded())
def test_a_request_of_an_existing_client_is_the_same_when_it_is_written_again(client: str) -> None:
    for frame in recorded()[client]:
        header = decode_request_header(frame)
        message = plain(decode_request(header.api_key, header.api_version, frame, header.body_offset))
        again = encode_request_header(header.api_key, header.api_version, header.correlation_id, header.client_id)
        assert again + encode_request(header.api_key, header.api_version, message) == frame, header
