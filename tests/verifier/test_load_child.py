"""How the child tells the repository's faults from those of the machine. It is imported here without its libraries."""

from __future__ import annotations

import pytest

from repokit.verifier.load_child import Fault, Skipped, Unchecked, missing_package, outcome_of, told

ERRORS = [
    (Fault("wrong"), "failed"),
    (Unchecked("not here"), "unchecked"),
    (Skipped("nothing to try"), "skipped"),
    (ValueError("bad value"), "failed"),
    (KeyError("model_type"), "failed"),
    (MemoryError(), "unchecked"),
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "unchecked"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "unchecked"),
    (RuntimeError("No GPU found. A GPU is needed for quantization."), "unchecked"),
    (ModuleNotFoundError("No module named 'hqq'", name="hqq"), "unchecked"),
    (ValueError("... pass the argument `trust_remote_code=True` to allow custom code"), "unchecked"),
    (SystemExit(3), "failed"),
]


@pytest.mark.parametrize(("error", "outcome"), ERRORS, ids=[repr(error) for error, _ in ERRORS])
def test_an_error_speaks_of_the_repository_or_of_the_machine(error, outcome):
    assert outcome_of(error)[0] == outcome


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (ModuleNotFoundError("No module named 'auto_gptq.x'", name="auto_gptq.x"), "auto_gptq"),
        (ImportError("Loading a GPTQ model requires gptqmodel (`pip install gptqmodel`)"), "gptqmodel"),
        (ImportError("Using `bitsandbytes` requires: `pip install -U bitsandbytes>=0.46.1`"), "bitsandbytes"),
        (ImportError("\nX requires the Torchvision library but it was not found"), "torchvision"),
        (ImportError("A valid HQQ version (>=0.2.1) is not available"), "hqq"),
        (ImportError("cannot say"), None),
    ],
)
def test_the_package_that_is_missing_is_named(error, package):
    assert missing_package(error) == package


REFUSED = """Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only
if you trust the source of the checkpoint.
        WeightsUnpickler error: Unsupported global: GLOBAL posix.system was not an allowed global by default."""


def test_a_refused_pickle_is_told_by_what_is_in_it_and_not_by_how_to_run_it():
    assert told(ValueError(REFUSED)) == "torch refuses the pickle: Unsupported global: GLOBAL posix.system"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("one", "ValueError: one"),
        ("\n  first\n  second", "ValueError: first"),
        (
            "Validation error for field 'x':\n    expected int",
            "ValueError: Validation error for field 'x': expected int",
        ),
        ("", "ValueError"),
    ],
)
def test_of_many_lines_the_one_that_says_something_is_told(message, line):
    assert told(ValueError(message)) == line
