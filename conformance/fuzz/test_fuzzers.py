"""Every fuzzer for a bounded number of inputs, of a fixed seed; `make fuzz TARGET=… RUNS=…` runs one for longer."""

import pytest

from conformance.fuzz.fuzz_engine import MODULES, check_all, examples, fuzz, load, reached


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
