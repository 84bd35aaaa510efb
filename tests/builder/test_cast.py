"""Casts against three other implementations: the integers of IEEE 754, Python's struct, and torch."""

from __future__ import annotations

import json
import math
import random
import struct

import pytest
from hypothesis import given, settings, strategies as st

from repokit.builder.execution import writing
from repokit.builder.transforms.cast import CASTABLE, DoesNotFitError, cast, is_cast
from repokit.errors import PlanError

FORMATS = {"F64": "d", "F32": "f", "F16": "e"}
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
PAIRS = [(stored, wanted) for stored in WIDTHS for wanted in WIDTHS if stored != wanted]
RANGE = {"F16": 65504.0, "BF16": 3.3895313892515355e38, "F32": 3.4028234663852886e38, "F64": 1.7976931348623157e308}
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=True)


def packed(dtype, *values):
    if dtype == "BF16":  # the upper half of a float that fits
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)


def unpacked(dtype, data):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[place : place + 2])[0] for place in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // WIDTHS[dtype]}{FORMATS[dtype]}", data))


def upper_half(value):
    """F32 to BF16 by integers: round to nearest, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little")


@settings(max_examples=1000, deadline=None)
@given(SINGLE.filter(lambda value: not RANGE["BF16"] < abs(value) < math.inf))
def test_f32_to_bf16_rounds_to_nearest_even(value):
    assert cast(struct.pack("<f", value), "F32>BF16") == upper_half(value)


@settings(max_examples=1000, deadline=None)
@given(st.floats(-65504, 65504))
def test_f64_to_f16_rounds_once_as_struct_does(value):
    assert cast(struct.pack("<d", value), "F64>F16") == struct.pack("<e", value)


@settings(max_examples=1000, deadline=None)
@given(st.floats(-65504, 65504, width=32))
def test_f32_to_f16_rounds_as_struct_does(value):
    assert cast(struct.pack("<f", value), "F32>F16") == struct.pack("<e", value)


@settings(max_examples=500, deadline=None)
@given(st.floats(-RANGE["F32"], RANGE["F32"]))
def test_f64_to_f32_rounds_as_struct_does(value):
    assert cast(struct.pack("<d", value), "F64>F32") == struct.pack("<f", value)


@pytest.mark.parametrize(
    ("narrow", "wide"), [("F16", "F32"), ("F16", "F64"), ("BF16", "F32"), ("BF16", "F64"), ("F32", "F64")]
)
def test_every_value_survives_a_wider_dtype_and_the_way_back(narrow, wide):
    count = 65536
    data = random.Random(0).randbytes(4 * count) if narrow == "F32" else struct.pack(f"<{count}H", *range(count))
    back = cast(cast(data, f"{narrow}>{wide}"), f"{wide}>{narrow}")
    values = zip(unpacked(narrow, data), unpacked(narrow, bytes(back)), strict=True)
    assert all(packed(narrow, one) == packed(narrow, other) for one, other in values if not math.isnan(one))


@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
def test_signed_zeros_and_infinities_stay(stored, wanted):
    values = (0.0, -0.0, math.inf, -math.inf)
    assert cast(packed(stored, *values), f"{stored}>{wanted}") == packed(wanted, *values)


@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_nan_stays_a_nan(stored, wanted, sign):
    (value,) = unpacked(wanted, bytes(cast(packed(stored, math.copysign(math.nan, sign)), f"{stored}>{wanted}")))
    assert math.isnan(value)


@pytest.mark.parametrize("payload", [0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F80FFFF])
@pytest.mark.parametrize("wanted", ["BF16", "F16", "F64"])
def test_a_nan_whose_payload_does_not_fit_is_no_infinity(payload, wanted):
    """Its upper half alone would be the bits of an infinity."""
    (value,) = unpacked(wanted, bytes(cast(payload.to_bytes(4, "little"), f"F32>{wanted}")))
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("F32>F16", 65520.0),
        ("F32>F16", -1e30),
        ("BF16>F16", 65536.0),
        ("F64>F16", 1e300),
        ("F64>F32", 1e39),
        ("F64>BF16", -1e39),
        ("F32>BF16", RANGE["F32"]),
    ],
)
def test_a_value_that_would_become_infinite_is_refused_with_its_place(spec, value):
    with pytest.raises(DoesNotFitError) as caught:
        cast(packed(spec.split(">")[0], 1.0, math.inf, value, value), spec)
    assert (caught.value.element, math.copysign(1, caught.value.value)) == (2, math.copysign(1, value))


@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
def test_the_largest_value_of_the_narrower_dtype_fits(stored, wanted):
    largest = 65280.0 if {stored, wanted} == {"F16", "BF16"} else min(RANGE[stored], RANGE[wanted])  # what both hold
    assert cast(packed(stored, largest, -largest), f"{stored}>{wanted}") == packed(wanted, largest, -largest)


@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
@pytest.mark.parametrize("cut", [1, 7, 63])
def test_pieces_give_what_the_whole_gives(stored, wanted, cut):
    data = packed(stored, *(random.Random(1).gauss(0, 1) if stored != "BF16" else number / 64 for number in range(64)))
    place = cut * WIDTHS[stored]
    spec = f"{stored}>{wanted}"
    assert bytes(cast(data[:place], spec)) + bytes(cast(data[place:], spec)) == bytes(cast(data, spec))


@pytest.mark.parametrize("spec", ["F32", "", "F32>", ">F32", "F32>I8", "I8>F32", "F32>F32>F32", "F32>F8_E4M3"])
def test_what_is_no_cast(spec):
    assert not is_cast(spec)


@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
def test_ml_dtypes_and_numpy_give_the_same_bits(stored, wanted):
    import ml_dtypes
    import numpy as np

    types = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
    values = np.frombuffer(finite_bits(stored, wanted), types[stored])
    assert cast(values.tobytes(), f"{stored}>{wanted}") == values.astype(types[wanted]).tobytes()


def finite_bits(stored, wanted):
    """Values of every exponent that both dtypes have, subnormals, zeros and infinities among them."""
    data = random.Random(7).randbytes(WIDTHS[stored] * 50_000)
    fits = [
        v for v in unpacked(stored, data) if not math.isnan(v) and (math.isinf(v) or abs(v) <= RANGE[wanted] * 0.99)
    ]
    return packed(stored, *fits, *(subnormal for subnormal in SUBNORMALS[stored] if abs(subnormal) <= RANGE[wanted]))


SUBNORMALS = {
    "F64": [5e-324, 1e-310, 1.5 * 2**-25, 2**-25, 2**-24, 2**-149, 1.5 * 2**-134],
    "F32": [2**-149, 3 * 2**-149, 2**-134, 1.5 * 2**-134, 2**-133, 2**-25, 1.5 * 2**-25, 2**-24, 1.5 * 2**-24],
    "F16": [2**-24, 3 * 2**-24, 2**-14, 1023 * 2**-24],
    "BF16": [2**-133, 3 * 2**-133, 2**-25, 1.5 * 2**-25, 2**-24],
}


@pytest.mark.oracle
@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
def test_torch_gives_the_same_bits(stored, wanted):
    torch = pytest.importorskip("torch", reason="compares with torch: install the dependency group `oracles`")
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    data = finite_bits(stored, wanted)
    if (stored, wanted) == ("F64", "F16"):  # torch rounds twice here; values that F32 holds need one rounding
        data = bytes(cast(cast(data, "F64>F32"), "F32>F64"))
    expected = torch.frombuffer(bytearray(data), dtype=types[stored]).to(types[wanted])
    assert bytes(cast(data, f"{stored}>{wanted}")) == expected.view(torch.uint8).numpy().tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize(("stored", "wanted"), PAIRS)
def test_torch_sees_a_nan_in_the_same_places(stored, wanted):
    torch = pytest.importorskip("torch", reason="compares with torch: install the dependency group `oracles`")
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    nans = {"F64": 0x7FF0000000000001, "F32": 0x7F800001, "F16": 0x7C01, "BF16": 0x7F81}
    data = packed(stored, 1.0) + nans[stored].to_bytes(WIDTHS[stored], "little") + packed(stored, -2.0)
    ours = torch.frombuffer(bytearray(cast(data, f"{stored}>{wanted}")), dtype=types[wanted])
    expected = torch.frombuffer(bytearray(data), dtype=types[stored]).to(types[wanted])
    assert torch.equal(ours.isnan(), expected.isnan())


# ------------------------------------------------------------------------------------------------ in a build


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("stored", sorted(CASTABLE))
def test_a_build_casts_floats_and_leaves_integers(workshop, dtype, stored):
    wanted = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    tensors = workshop.model(stored)
    workshop.checkpoint(tensors)
    workshop.build(weights={"dtype": dtype})
    assert workshop.tensors() == {
        name: (wanted, shape, bytes(cast(data, f"{stored}>{wanted}")) if stored != wanted else data)
        if tensor_dtype == stored
        else (tensor_dtype, shape, data)
        for name, (tensor_dtype, shape, data) in tensors.items()
    }


@pytest.mark.parametrize("chunk", [8, 16, 64])
def test_chunks_end_where_they_like(workshop, monkeypatch, chunk):
    workshop.checkpoint()
    workshop.build(weights={"dtype": "bfloat16"}, output="./whole/name")
    monkeypatch.setattr(writing, "CHUNK", chunk)
    workshop.build(weights={"dtype": "bfloat16"}, output="./small/name")
    assert workshop.contents(workshop.folder / "small") == workshop.contents(workshop.folder / "whole")


def test_patterns_keep_tensors_as_they_are(workshop):
    tensors = workshop.model()
    workshop.checkpoint(tensors)
    workshop.build(weights={"dtype": "bfloat16", "keep": ["*norm.weight"]})
    assert {name for name, (dtype, _, _) in workshop.tensors().items() if dtype == "F32"} == {
        name for name in tensors if name.endswith("norm.weight")
    }


def test_config_states_what_the_weights_are_cast_to(workshop):
    workshop.checkpoint()
    workshop.build(weights={"dtype": "bfloat16"})
    assert json.loads(workshop.read("config.json")) == {**workshop.config, "dtype": "bfloat16"}


def test_config_states_the_dtype_that_was_asked_for_although_nothing_is_cast(workshop):
    """A Trainer may leave `float32` in config.json beside weights that are bfloat16 already."""
    workshop.checkpoint(workshop.model("BF16"), config={"dtype": "float32"})
    workshop.build(weights={"dtype": "bfloat16"})
    assert json.loads(workshop.read("config.json"))["dtype"] == "bfloat16"


def test_an_overflow_stops_the_build_and_names_the_tensor(workshop):
    tensors = workshop.model()
    name = "model.layers.1.mlp.up_proj.weight"
    dtype, shape, data = tensors[name]
    workshop.checkpoint({**tensors, name: (dtype, shape, data[:-4] + struct.pack("<f", 70000.0))})
    with pytest.raises(PlanError, match="has the value 70000, which F16 cannot hold") as caught:
        workshop.build(weights={"dtype": "float16"})
    assert (caught.value.path, caught.value.place) == ("model.safetensors", name)


def test_an_overflow_leaves_nothing_behind(workshop):
    name = "model.norm.weight"
    workshop.checkpoint({**workshop.model(), name: ("F32", (1,), struct.pack("<f", 70000.0))})
    with pytest.raises(PlanError):
        workshop.build(weights={"dtype": "float16"})
    assert not workshop.output.exists()
    assert workshop.hidden() == []


def test_a_kept_tensor_may_hold_what_the_others_could_not(workshop):
    name = "model.norm.weight"
    workshop.checkpoint({**workshop.model(), name: ("F32", (1,), struct.pack("<f", 70000.0))})
    workshop.build(weights={"dtype": "float16", "keep": [name]})
    assert workshop.tensors()[name] == ("F32", (1,), struct.pack("<f", 70000.0))
