"""The numbers of a merge against numpy in F64, over shapes, dtypes, layouts and blocks; and what a plan may say of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from repokit.builder.merging.checks import mergeable
from repokit.builder.plan import Plan, SourceFile, Summary
from repokit.builder.reading import CHUNK, Reader
from repokit.builder.transforms import merge
from repokit.builder.transforms.cast import cast
from repokit.operations import Added, LowRank, Matrix, Merged, NewRows, Piece, View, WriteShard

DTYPES = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)}
# Half the distance between neighbours, relative to them: what rounding once may cost.
ROUNDING = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}
Array = np.ndarray[Any, Any]


class Bench:
    """A file that tensors are put into, and what a plan says of where they lie."""

    def __init__(self, folder, seed: int = 0) -> None:
        self.path = folder / "tensors"
        self._random = np.random.default_rng(seed)
        self._content = b""
        self.matrices: dict[int, Array] = {}

    def values(self, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> Array:
        return (self._random.standard_normal(shape) * scale).astype(DTYPES[dtype])

    def piece(self, array: Array) -> Piece:
        piece = Piece(source=0, offset=len(self._content), length=array.nbytes)
        self._content += array.tobytes()
        self.path.write_bytes(self._content)
        return piece

    def matrix(self, array: Array, dtype: str) -> Matrix:
        rows, columns = array.shape
        return Matrix(piece=self.piece(array), dtype=dtype, shape=(rows, columns))

    def merged(self, content: Merged) -> Array:
        """The tensor in the dtype that it is worked out in."""
        chunks = [bytes(chunk) for chunk in Reader([str(self.path)]).contents(content)]
        return np.frombuffer(b"".join(chunks), dtype=DTYPES[content.worked_in]).reshape(content.shape)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def exact(array: Array) -> Array:
    return array.astype(np.float64)


@dataclass
class Case:
    """A drawn merge: the tensor before it, in F64 after it, and a bound for what rounding may add."""

    content: Merged
    wanted: Array
    bound: Array


def product(bench: Bench, draw: Any, shape: tuple[int, int]) -> tuple[LowRank, Array, Array]:
    rank = draw(st.integers(1, 6))
    transposed = draw(st.booleans())
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    outputs, inputs = (shape[1], shape[0]) if transposed else shape
    a, b = bench.values((rank, inputs), dtype), bench.values((outputs, rank), dtype)
    scale = draw(st.sampled_from([2.0, 0.125, -1.0, 1 / 3]))
    whole = exact(b) @ exact(a) * scale
    rounded = np.abs(exact(b)) @ np.abs(exact(a)) * abs(scale)
    change = LowRank(a=bench.matrix(a, dtype), b=bench.matrix(b, dtype), scale=scale, transposed=transposed)
    return (change, whole.T, rounded.T) if transposed else (change, whole, rounded)


@st.composite
def sums(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    return (
        shape,
        draw(st.sampled_from(sorted(DTYPES))),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.data()),
    )


@settings(deadline=None, max_examples=60)
@given(sums())
def test_products_are_added(tmp_path_factory, drawn):
    shape, dtype, number, seed, data = drawn
    bench = Bench(tmp_path_factory.mktemp("merge"), seed)
    base = bench.values(shape, dtype)
    changes, wanted, bound = [], exact(base), np.abs(exact(base))
    for _ in range(number):
        change, added, largest = product(bench, data.draw, shape)
        changes.append(change)
        wanted += added
        bound += largest
    content = Merged(base=(bench.piece(base),), dtype=dtype, shape=shape, changes=tuple(changes))
    # A sum of at most seven products, and one addition for each change.
    assert np.all(np.abs(bench.merged(content) - wanted) <= 12 * ROUNDING[content.worked_in] * bound)


def test_a_result_of_16_bits_is_rounded_once(bench):
    """With a second rounding to BF16 before the sum, a third of the elements would be off by one place."""
    base, a, b = (bench.values(shape, "BF16") for shape in ((64, 48), (8, 48), (64, 8)))
    change = LowRank(a=bench.matrix(a, "BF16"), b=bench.matrix(b, "BF16"), scale=0.3)
    content = Merged(base=(bench.piece(base),), dtype="BF16", shape=(64, 48), changes=(change,), cast="F32>BF16")
    result = np.frombuffer(cast(bench.merged(content).tobytes(), "F32>BF16"), dtype=DTYPES["BF16"]).reshape(64, 48)
    assert np.array_equal(result, (exact(base) + exact(b) @ exact(a) * 0.3).astype(DTYPES["BF16"]))


def test_blocks_of_any_height_give_the_same(bench, monkeypatch):
    base, a, b = (bench.values(shape, "BF16") for shape in ((50, 30), (4, 30), (50, 4)))
    magnitude = bench.values((50, 1), "F32")
    change = LowRank(
        a=bench.matrix(a, "BF16"), b=bench.matrix(b, "BF16"), scale=2.0, magnitude=bench.matrix(magnitude, "F32")
    )
    content = Merged(base=(bench.piece(base),), dtype="BF16", shape=(50, 30), changes=(change,), cast="F32>BF16")
    whole = bench.merged(content)
    monkeypatch.setattr(merge, "MERGE_BLOCK", 7 * 30)
    assert np.array_equal(bench.merged(content), whole)


def test_a_tensor_of_several_chunks_is_put_together_from_its_parts(bench):
    rows = 3 * CHUNK // 4 // 256
    base = bench.values((rows, 256), "F32")
    a, b = bench.values((2, 256), "F32"), bench.values((rows, 2), "F32")
    half = rows // 2 + 1
    change = LowRank(a=bench.matrix(a, "F32"), b=bench.matrix(b, "F32"), scale=1.0)
    parts = (bench.piece(base[:half]), bench.piece(base[half:]))
    content = Merged(base=parts, dtype="F32", shape=(rows, 256), changes=(change,))
    assert np.allclose(bench.merged(content), exact(base) + exact(b) @ exact(a), rtol=1e-6, atol=1e-6)


def dora(weight: Array, delta: Array, magnitude: Array, axis: int, base: Array | None = None) -> Array:
    """As its paper has it: magnitude times the direction of the sum; see peft tuners/lora/variants.py."""
    norms = np.sqrt(np.sum(((weight if base is None else base) + delta) ** 2, axis=axis, keepdims=True))
    return magnitude * (weight + delta) / norms


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_dora_brings_every_output_to_its_norm(bench, dtype, transposed, monkeypatch):
    monkeypatch.setattr(merge, "MERGE_BLOCK", 9 * 24)
    shape = (40, 24)
    inputs, outputs = shape if transposed else shape[::-1]
    base, a, b = bench.values(shape, dtype), bench.values((3, inputs), "F32"), bench.values((outputs, 3), "F32")
    magnitude = np.abs(bench.values((outputs, 1), "F32")) + 0.5
    factors = {"a": bench.matrix(a, "F32"), "b": bench.matrix(b, "F32"), "magnitude": bench.matrix(magnitude, "F32")}
    change = LowRank(**factors, scale=0.5, transposed=transposed)
    content = Merged(base=(bench.piece(base),), dtype=dtype, shape=shape, changes=(change,))
    delta = exact(b) @ exact(a) * 0.5
    if transposed:
        wanted = dora(exact(base), delta.T, exact(magnitude).T, axis=0)
    else:
        wanted = dora(exact(base), delta, exact(magnitude), axis=1)
    assert np.allclose(bench.merged(content), wanted, rtol=2e-6, atol=1e-7)


def test_a_second_dora_takes_the_norm_of_the_base(bench):
    """peft 0.21 lora/layer.py _unmerged_base_weight: as it is while both adapters are active."""
    base = bench.values((12, 10), "F32")
    factors = [(bench.values((2, 10), "F32"), bench.values((12, 2), "F32")) for _ in range(2)]
    magnitudes = [np.abs(bench.values((12, 1), "F32")) + 0.5 for _ in range(2)]
    changes = tuple(
        LowRank(a=bench.matrix(a, "F32"), b=bench.matrix(b, "F32"), scale=1.0, magnitude=bench.matrix(m, "F32"))
        for (a, b), m in zip(factors, magnitudes, strict=True)
    )
    content = Merged(base=(bench.piece(base),), dtype="F32", shape=(12, 10), changes=changes)
    wanted = exact(base)
    for (a, b), magnitude in zip(factors, magnitudes, strict=True):
        wanted = dora(wanted, exact(b) @ exact(a), exact(magnitude), axis=1, base=exact(base))
    assert np.allclose(bench.merged(content), wanted, rtol=2e-6, atol=1e-7)


def test_a_row_of_zeros_stays_zero_under_dora(bench):
    """Padding of a vocabulary: its norm is 0, and 0 / 0 would be NaN."""
    base = np.zeros((3, 4), dtype="<f4")
    a, b = bench.values((1, 4), "F32"), np.zeros((3, 1), dtype="<f4")
    magnitude = np.zeros((3, 1), dtype="<f4")
    matrices = {"a": bench.matrix(a, "F32"), "b": bench.matrix(b, "F32"), "magnitude": bench.matrix(magnitude, "F32")}
    content = Merged(base=(bench.piece(base),), dtype="F32", shape=(3, 4), changes=(LowRank(**matrices, scale=1.0),))
    assert not bench.merged(content).any()


def test_experts_are_changed_each_by_its_own_factors(bench, monkeypatch):
    monkeypatch.setattr(merge, "MERGE_BLOCK", 11 * 6)
    base = bench.values((4, 5, 6), "F32")
    factors = [(bench.values((2, 6), "F32"), bench.values((5, 2), "F32")) for _ in range(4)]
    changes = tuple(
        LowRank(a=bench.matrix(a, "F32"), b=bench.matrix(b, "F32"), scale=3.0, first=5 * number)
        for number, (a, b) in enumerate(factors)
    )
    content = Merged(base=(bench.piece(base),), dtype="F32", shape=(20, 6), changes=changes)
    wanted = exact(base) + np.stack([exact(b) @ exact(a) * 3.0 for a, b in factors])
    assert np.allclose(bench.merged(content), wanted.reshape(20, 6), rtol=1e-6, atol=1e-6)


def test_factors_may_lie_apart(bench):
    """As those of one expert among those of all."""
    base, a, together = bench.values((5, 6), "F32"), bench.values((2, 6), "F32"), bench.values((5, 2, 3), "F32")
    piece = bench.piece(together)
    view = View(shape=(5, 2), strides=(6, 3), itemsize=4)
    b = Matrix(
        piece=piece.model_copy(update={"offset": piece.offset + 4, "length": view.span, "view": view}),
        dtype="F32",
        shape=(5, 2),
    )
    content = Merged(
        base=(bench.piece(base),),
        dtype="F32",
        shape=(5, 6),
        changes=(LowRank(a=bench.matrix(a, "F32"), b=b, scale=1.0),),
    )
    assert np.allclose(bench.merged(content), exact(base) + exact(together[:, :, 1]) @ exact(a), rtol=1e-6, atol=1e-6)


def test_a_diagonal_weighs_the_rows_of_a(bench):
    base, a, b, e = (bench.values(shape, "F32") for shape in ((5, 6), (3, 6), (5, 3), (3, 1)))
    matrices = {"a": bench.matrix(a, "F32"), "b": bench.matrix(b, "F32"), "diagonal": bench.matrix(e, "F32")}
    content = Merged(base=(bench.piece(base),), dtype="F32", shape=(5, 6), changes=(LowRank(**matrices, scale=2.0),))
    assert np.allclose(bench.merged(content), exact(base) + exact(b) @ (exact(a) * exact(e)) * 2, rtol=1e-6, atol=1e-6)


def test_values_are_added_to_a_bias(bench):
    base, more = bench.values((7, 1), "F16"), bench.values((7, 1), "F32")
    content = Merged(
        base=(bench.piece(base),),
        dtype="F16",
        shape=(7, 1),
        changes=(Added(values=bench.matrix(more, "F32"), scale=0.5),),
    )
    assert np.allclose(bench.merged(content), exact(base) + exact(more) / 2, rtol=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_new_rows_take_the_place_of_old_ones_and_the_others_keep_every_bit(tmp_path_factory, data):
    bench = Bench(tmp_path_factory.mktemp("rows"))
    base = bench.values((30, 4), "BF16")
    chosen = tuple(data.draw(st.lists(st.integers(0, 29), unique=True, min_size=1)))
    rows = bench.values((len(chosen), 4), "F32")
    change = NewRows(rows=chosen, values=bench.matrix(rows, "F32"))
    content = Merged(base=(bench.piece(base),), dtype="BF16", shape=(30, 4), changes=(change,), cast="F32>BF16")
    result = np.frombuffer(cast(bench.merged(content).tobytes(), "F32>BF16"), dtype=DTYPES["BF16"]).reshape(30, 4)
    wanted = base.copy()
    wanted[list(chosen)] = rows.astype(DTYPES["BF16"])
    assert result.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_no_numbers_are_seen(value):
    values = np.ones(5, dtype=DTYPES["BF16"])
    values[3] = value
    assert not merge.looked_at([memoryview(values.view("u1").data)], "BF16").finite


def test_a_zero_of_either_sign_is_zero():
    values = np.array([0.0, -0.0], dtype="<f2")
    assert merge.looked_at([memoryview(values.view("u1").data)], "F16").zero


# ---------------------------------------------------------------- what a plan may say


def content(bench: Bench, **update: Any) -> Merged:
    base, a, b = (bench.values(shape, "F32") for shape in ((6, 4), (2, 4), (6, 2)))
    change = LowRank(a=bench.matrix(a, "F32"), b=bench.matrix(b, "F32"), scale=1.0)
    fitting = Merged(base=(bench.piece(base),), dtype="F32", shape=(6, 4), changes=(change,))
    changed = {key: value for key, value in update.items() if key in Merged.model_fields}
    of_product = {key: value for key, value in update.items() if key in LowRank.model_fields}
    return fitting.model_copy(update={"changes": (change.model_copy(update=of_product),), **changed})


def test_a_merge_that_fits_is_taken(bench):
    assert mergeable(content(bench))


def small(bench: Bench, rows: int, columns: int) -> Matrix:
    return bench.matrix(bench.values((rows, columns), "F32"), "F32")


DAMAGE = {
    "the tensor has other bytes than its shape": lambda bench: {"shape": (6, 5)},
    "the tensor has another dtype than its bytes": lambda bench: {"dtype": "F16"},
    "it is cast from another dtype": lambda bench: {"cast": "F16>BF16"},
    "the factors begin beyond the tensor": lambda bench: {"first": 1},
    "the factors are turned": lambda bench: {"transposed": True},
    "A has another rank": lambda bench: {"a": small(bench, 3, 4)},
    "B has more outputs than rows are there": lambda bench: {"b": small(bench, 7, 2)},
    "a diagonal of another rank": lambda bench: {"diagonal": small(bench, 3, 1)},
    "magnitudes of other outputs": lambda bench: {"magnitude": small(bench, 5, 1)},
    "a matrix has other bytes than its shape": lambda bench: {
        "a": small(bench, 2, 4).model_copy(update={"shape": (2, 40)})
    },
    "a matrix of a huge shape": lambda bench: {"a": small(bench, 2, 4).model_copy(update={"shape": (2, 10**12)})},
    "rows that are not there": lambda bench: {"changes": (NewRows(rows=(6,), values=small(bench, 1, 4)),)},
    "a row twice": lambda bench: {"changes": (NewRows(rows=(1, 1), values=small(bench, 2, 4)),)},
    "fewer values than rows": lambda bench: {"changes": (NewRows(rows=(1, 2), values=small(bench, 1, 4)),)},
    "a sum of another shape": lambda bench: {"changes": (Added(values=small(bench, 6, 3), scale=1.0),)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_merge_that_does_not_fit_together_is_refused(bench, damage):
    assert not mergeable(content(bench, **DAMAGE[damage](bench)))


def plan_of(content: Merged) -> Plan:
    shard = WriteShard(path="model.safetensors", header=b"header", pieces=(content,), size=6 + content.size)
    summary = Summary(tensors=1, parameters=24, weight_bytes=96, source_bytes=96, shards=1)
    source = SourceFile(path="tensors", size=1000, mtime_ns=0)
    return Plan(
        repokit="0", output="out", manifest="off", sources=(source,), operations=(shard,), left_out=(), summary=summary
    )


def test_a_plan_with_a_merge_survives_json(bench):
    plan = plan_of(content(bench))
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_with_a_merge_of_unknown_sources_is_refused(bench):
    fitting = content(bench)
    far = fitting.changes[0].a.model_copy(update={"piece": fitting.changes[0].a.piece.model_copy(update={"source": 1})})
    with pytest.raises(ValidationError, match="has a piece that cannot be read"):
        plan_of(fitting.model_copy(update={"changes": (fitting.changes[0].model_copy(update={"a": far}),)}))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_scale_is_a_number(bench, number):
    fitting = content(bench).changes[0]
    with pytest.raises(ValidationError):
        LowRank(a=fitting.a, b=fitting.b, scale=number)


def test_the_memory_of_a_merge_does_not_grow_with_its_rows(bench):
    """Of a matrix of 80 GB: the factors and a few blocks."""
    huge, rank = 10**6, 16
    piece = Piece(source=0, offset=0, length=4 * huge * 20_000)
    a = Matrix(piece=Piece(source=0, offset=0, length=4 * rank * 20_000), dtype="F32", shape=(rank, 20_000))
    b = Matrix(piece=Piece(source=0, offset=0, length=4 * rank * huge), dtype="F32", shape=(huge, rank))
    whole = Merged(base=(piece,), dtype="F32", shape=(huge, 20_000), changes=(LowRank(a=a, b=b, scale=1.0),))
    assert whole.memory < 300 * 10**6
