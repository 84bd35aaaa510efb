"""`.metadata` and the archives that it names, written by hand; what torch writes is in tests/oracles."""

from __future__ import annotations

import re

import dcp_writer as dcp
import pytest
from dcp_writer import Whole, box, described, files, index, info, metadata
from hypothesis import given, settings, strategies as st
from torch_writer import archive as zipped, call, name, number, program, text, torch_entries

from repokit.errors import InputError, MalformedFile, UnsupportedSource
from repokit.formats.dcp import METADATA, by_file, read_metadata, unknown_globals
from repokit.formats.dcp_chunks import Chunks, counted
from repokit.formats.dcp_model import select

GRID = [
    ("__0_0.distcp", (0, 0), (4, 3)),
    ("__0_0.distcp", (4, 0), (3, 3)),
    ("__1_0.distcp", (0, 3), (4, 3)),
    ("__1_0.distcp", (4, 3), (3, 3)),
]
TWO = {
    ("model", "model.embed.weight"): Whole("F32", (7, 6), GRID),
    ("model", "lm_head.weight"): Whole("BF16", (3, 4)),
}


def read(folder):
    return read_metadata(folder[METADATA], METADATA)


def entries(folder):
    found = read(folder)
    return found.entries({fqn: fqn for fqn in found.tensors})


def places(folder):
    """Bytes of every chunk of a folder, by tensor and offsets."""
    chunks, found = Chunks(), {}
    for file, pairs in by_file(entries(folder)).items():
        data = folder[file]
        for entry, chunk in pairs:
            place = chunks.place(
                lambda offset, length, d=data: d[offset : offset + length], len(data), file, entry, chunk
            )
            found[entry.name, chunk.offsets] = data[place.offset :]
    return found


def refusal(folder, action=places, expected=InputError):
    with pytest.raises(expected) as caught:
        action(folder)
    return str(caught.value)


def one(entry=None, place=None, **more):
    """A folder of one tensor, one part of its metadata as given."""
    described_ = described("F32", (2, 2), [box((0, 0), (2, 2))]) if entry is None else entry
    content = dcp.archive("F32", (2, 2), bytes(range(16)))
    stored = info("__0_0.distcp", 0, len(content)) if place is None else place
    document = metadata([("w", described_)], [(index("w", (0, 0)), stored)], **more)
    return {"__0_0.distcp": content, METADATA: document}


# ------------------------------------------------------------------------------------------------ what is read


def test_tensors_have_names_dtypes_and_shapes():
    found = entries(files(TWO))
    assert {name: (entry.dtype, entry.shape) for name, entry in found.items()} == {
        "model.model.embed.weight": ("F32", (7, 6)),
        "model.lm_head.weight": ("BF16", (3, 4)),
    }


def test_keys_are_told_apart_from_dots_in_them():
    assert list(read(files(TWO)).tensors.values()) == list(TWO)


def test_every_part_is_found_where_it_lies():
    found = places(files(TWO))
    for path, whole in TWO.items():
        for _, offsets, sizes in whole.parts:
            wanted = whole.part(offsets, sizes)
            assert found[".".join(path), offsets][: len(wanted)] == wanted


def test_values_that_are_no_tensors_are_not_opened():
    folder = files(TWO, pickled=(("step",),))
    assert read(folder).pickled == {"step": ("step",)}


def test_a_tensor_without_elements_lies_nowhere():
    (entry,) = entries(files({("w",): Whole("F32", (0, 4))})).values()
    assert entry.chunks == ()


def test_a_scalar_is_one_part():
    (entry,) = entries(files({("w",): Whole("F32", ())})).values()
    assert entry.chunks[0].sizes == ()


def test_parts_without_elements_are_left_out():
    """Of a matrix with one row, the second of two processes has none."""
    parts = [("__0_0.distcp", (0, 0), (1, 4)), ("__1_0.distcp", (1, 0), (0, 4))]
    (entry,) = entries(files({("w",): Whole("F32", (1, 4), parts)})).values()
    assert [chunk.sizes for chunk in entry.chunks] == [(1, 4)]


def test_an_entry_of_the_optimizer_may_be_anything():
    """It is dropped: what is wrong with it is no matter."""
    broken = described("complex128", (3,), [])
    document = metadata(
        [("w", described("F32", (), [box((), ())])), ("o", broken)], [(index("w", ()), info("f", 0, 1))]
    )
    assert set(read_metadata(document, METADATA).entries({"w": "w"})) == {"w"}


@pytest.mark.parametrize(("sizes", "wanted"), [((3, 2), (3, 4)), ((), ())])
def test_pairs_of_4_bits_are_counted_one_by_one(sizes, wanted):
    assert counted("F4", sizes) == wanted


# ------------------------------------------------------------------------------------------------ what is refused


def test_a_gap_is_named():
    folder = files({("w",): Whole("F32", (7, 6), GRID[:3])})
    assert "w: says where some of it lies: 33 of 42 elements, none at [4, 3]" in refusal(folder)


def test_an_overlap_is_named():
    parts = [*GRID[:3], ("__1_0.distcp", (3, 3), (4, 3))]
    assert "the parts at [0, 3] and [3, 3] overlap" in refusal(files({("w",): Whole("F32", (7, 6), parts)}))


def test_a_part_without_a_place_is_named():
    folder = {METADATA: metadata([("w", described("F32", (2,), [box((0,), (2,))]))], [])}
    assert "w: has a chunk at [0] that lies in no file" in refusal(folder)


def test_two_places_for_one_part_are_refused():
    twice = [(index("w", (0,)), info("a", 0, 1)), (index("w", (0,)), info("b", 0, 1))]
    folder = {METADATA: metadata([("w", described("F32", (2,), [box((0,), (2,))]))], twice)}
    assert "has two places for one chunk" in refusal(folder)


@pytest.mark.parametrize("path", ["../x.distcp", "/etc/passwd", "a/../../x", "C:\\x", "~/x", "", "a\0b"])
def test_a_file_elsewhere_is_refused(path):
    assert "which is no file inside the checkpoint" in refusal(one(place=info(path, 0, 100)), expected=MalformedFile)


@pytest.mark.parametrize("fqn", ["../w", "/w", "a\0b", "a\nb", "", "__metadata__"])
def test_a_name_that_no_tensor_has_is_refused(fqn):
    document = metadata([(fqn, described("F32", (), [box((), ())]))], [(index(fqn, ()), info("f", 0, 1))])
    assert "names a tensor that" in refusal({METADATA: document})


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (
            described("complex128", (2, 2), [box((0, 0), (2, 2))]),
            "is of dtype complex128, which safetensors does not have",
        ),
        (described("F32", (10**12,), [box((0,), (10**12,))]), "has a chunk at [0] that lies in no file"),
        (described("F32", (2**61,), []), "has a shape or offsets that are none"),
        (described("F32", (2, 2), [box((0,), (4,))]), "has 2 dimensions, and a chunk that has not"),
        (described("F32", (2, 2), [box((0, 0), (2, 3))]), "reaches out of [2, 2]"),
        (dcp.made(dcp.METADATA, "TensorStorageMetadata"), "has a shape or offsets that are none"),
        (dcp.made(dcp.METADATA, "SomethingElse"), "is neither a tensor nor a pickled value"),
        (text("x"), "is neither a tensor nor a pickled value"),
    ],
)
def test_what_is_wrong_with_a_tensor_is_said(entry, what):
    assert what in refusal(one(entry))


def test_a_sparse_tensor_is_refused():
    fields = {"properties": dcp.properties("float32", "torch.sparse_coo"), "size": dcp.sizes((2,)), "chunks": b"]"}
    assert "is of the layout torch.sparse_coo" in refusal(
        one(dcp.made(dcp.METADATA, "TensorStorageMetadata", **fields))
    )


def test_a_stored_extension_is_refused():
    place = info("__0_0.distcp", 0, 9, transform_descriptors=dcp.list_of(text("zstd")))
    assert "stored through an extension" in refusal(one(place=place), expected=UnsupportedSource)


@pytest.mark.parametrize("begin", [0, 10])
def test_a_file_that_is_cut_off_is_named(begin):
    folder = files(TWO)
    folder["__0_0.distcp"] = folder["__0_0.distcp"][:begin]
    assert re.search(r"__0_0\.distcp: .*: is cut off: its part at \[0, 0\] ends at byte", refusal(folder))


def test_another_dtype_in_the_archive_is_named():
    folder = one()
    content = dcp.archive("BF16", (2, 4), bytes(16))
    folder[METADATA] = one(place=info("__0_0.distcp", 0, len(content)))[METADATA]
    folder["__0_0.distcp"] = content
    assert "w: holds BF16 [2, 4], and F32 [2, 2] is to be there" in refusal(folder)


def test_something_else_than_a_tensor_is_named():
    content = zipped(torch_entries(program(dcp.dict_of(("w", number(1))))), wide=True)
    folder = {**one(place=info("__0_0.distcp", 0, len(content))), "__0_0.distcp": content}
    assert "__0_0.distcp: w, byte 0: is no tensor" in refusal(folder)


def test_an_archive_that_is_none_is_named():
    folder = one()
    folder["__0_0.distcp"] = bytes(len(folder["__0_0.distcp"]))
    assert "__0_0.distcp: w, byte 0" in refusal(folder)


@pytest.mark.parametrize("data", [b"", b"\x80\x04N.", b"\x80\x04", b"PK\x03\x04", program(text("x"), 4)])
def test_metadata_that_is_none_is_refused(data):
    refusal({METADATA: data}, expected=MalformedFile)


def test_bytes_behind_metadata_are_refused():
    assert "goes on for 1 byte" in refusal({METADATA: one()[METADATA] + b"x"})


def test_metadata_that_runs_code_is_refused():
    attack = metadata([("w", call(name("os", "system"), text("true")))], [])
    assert "names os.system, which can run code" in refusal({METADATA: attack}, expected=MalformedFile)


def test_metadata_that_runs_code_and_breaks_off_is_an_attack():
    attack = metadata([("w", call(name("os", "system"), text("true")))], [])
    assert "names os.system, which can run code" in refusal({METADATA: attack[:-3]}, expected=MalformedFile)


def test_an_archive_that_runs_code_is_refused():
    content = zipped(torch_entries(program(call(name("os", "system"), text("true")))), wide=True)
    folder = {**one(place=info("__0_0.distcp", 0, len(content))), "__0_0.distcp": content}
    assert "names os.system, which can run code" in refusal(folder)


def test_the_form_of_an_archive_is_not_taken_for_another():
    """The second archive is as long as the first, and begins otherwise: it is opened as well."""
    folder = one()
    first = folder["__0_0.distcp"]
    other = first.replace(b"FloatStorage", b"DoubleStorage"[:12])
    entry = described("F32", (2, 2), [box((0, 0), (2, 2))])
    stored = [(index("w", (0, 0)), info("f", 0, len(first))), (index("x", (0, 0)), info("f", len(first), len(other)))]
    folder = {METADATA: metadata([("w", entry), ("x", entry)], stored), "f": first + other}
    assert "f: x, byte" in refusal(folder)


@pytest.mark.parametrize("cut", [1, 60, 97])
def test_an_archive_that_ends_otherwise_is_opened_as_well(cut):
    """The second archive begins as the first does, and its end is overwritten."""
    first = one()["__0_0.distcp"]
    other = first[:-cut] + b"x" * cut
    entry = described("F32", (2, 2), [box((0, 0), (2, 2))])
    stored = [(index("w", (0, 0)), info("f", 0, len(first))), (index("x", (0, 0)), info("f", len(first), len(other)))]
    refusal({METADATA: metadata([("w", entry), ("x", entry)], stored), "f": first + other}, expected=MalformedFile)


def test_a_class_that_is_not_known_is_named():
    folder = one(storage_meta=call(name("mylib.paths", "CloudPath")))
    assert unknown_globals(read(folder)) == ("mylib.paths.CloudPath",)


@settings(max_examples=150)
@given(st.data())
def test_damage_is_refused_or_does_no_harm(data):
    """Whatever bytes are changed or cut off: an error of our own, or tensors of the shapes that were written."""
    folder = files(TWO)
    file = data.draw(st.sampled_from(sorted(folder)))
    content = bytearray(folder[file])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder[file] = bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 1]))])
    try:
        found = places(folder)
    except InputError:
        return
    assert found


# ------------------------------------------------------------------------------------------------ which are the model's

W = Whole("F32", (2, 2))
OPTIMIZER = {("optimizer", "state", "w", "exp_avg"): W}
PLACES = {
    "accelerate": ({("model", "model.w"): W, ("model", "lm_head.w"): W}, "model"),
    "with an optimizer": ({("model", "model.w"): W, **OPTIMIZER}, "model"),
    "application state": ({("app", "model", "model.w"): W, ("app", "optim", "state", "model.w", "x"): W}, "app.model"),
    "Lightning": ({("state_dict", "model.w"): W, ("optimizer_0", "state", "w", "x"): W}, "state_dict"),
    "torchtitan": ({("layers.0.w",): W, ("tok.w",): W, **OPTIMIZER, ("train_state", "x"): W}, ""),
    "the top": ({("model.w",): W, ("lm_head.w",): W}, ""),
    "modules in a dict": ({("model", "encoder", "w"): W, ("model", "decoder", "w"): W}, "model"),
    "an average beside it": ({("model", "w"): W, ("ema", "w"): W}, "model"),
    "an average alone": ({("ema", "w"): W, **OPTIMIZER}, "ema"),
    "a flat optimizer": ({("model", "w"): W, ("o", "state.w.exp_avg"): W, ("o", "param_groups.w.lr"): W}, "model"),
}


@pytest.mark.parametrize("case", PLACES)
def test_the_model_is_found(case):
    tensors, container = PLACES[case]
    assert select(read(files(tensors))).container == container


@pytest.mark.parametrize("case", PLACES)
def test_names_are_what_stands_below_the_model(case):
    tensors, container = PLACES[case]
    depth = len(container.split(".")) if container else 0
    inside = {
        path for path in tensors if ".".join(path[:depth]) == container and path[depth : depth + 1] != ("optimizer",)
    }
    wanted = {".".join(path[depth:]) for path in inside} - {"train_state.x"}
    assert set(select(read(files(tensors))).names) == wanted


@pytest.mark.parametrize(
    ("tensors", "container", "names"),
    [
        ({("model", "model.w"): W, **OPTIMIZER}, "model", {"model.w"}),
        ({("model", "w"): W}, "", {"model.w"}),
        ({("w",): W, **OPTIMIZER}, "", {"w"}),
    ],
)
def test_names_alone_are_taken_apart_with_care(tensors, container, names):
    """Where nothing says the keys, `model.` is one only if there is something else beside it."""
    found = select(read(files(tensors, planned=False)))
    assert (found.container, set(found.names)) == (container, names)


@pytest.mark.parametrize(
    ("tensors", "what"),
    [
        (
            {("actor", "w"): W, ("critic", "w"): W},
            "holds tensors in 2 places, and no rule says which are the model: actor, critic",
        ),
        ({("model", "w"): W, ("net", "w"): W}, "holds tensors in 2 places"),
        (OPTIMIZER, "holds no model, but optimizer"),
        ({}, "holds no model"),
        ({("model", "a", "b"): W, ("model", "a.b"): W}, "has a name twice"),
    ],
)
def test_what_a_person_has_to_decide_is_refused(tensors, what):
    assert what in refusal(files(tensors), lambda folder: select(read(folder)))


def test_what_is_left_out_is_counted():
    tensors = {("model", "w"): W, **OPTIMIZER, ("optimizer", "state", "w", "step"): W}
    folder = files(tensors, pickled=(("optimizer", "param_groups"), ("step",), ("model", "_extra_state")))
    assert [(left.path, left.what) for left in select(read(folder)).left_out] == [
        ("optimizer", "2 tensors and 1 pickled value"),
        ("step", "1 pickled value"),
        ("model._extra_state", "a pickled value, not a tensor"),
    ]


@pytest.mark.parametrize("word", ["scaler.weight", "config.weight", "step.bias"])
def test_without_keys_a_module_may_be_called_like_state_of_the_run(word):
    found = select(read(files({("embed.weight",): W, (word,): W, **OPTIMIZER}, planned=False)))
    assert set(found.names) == {"embed.weight", word}


@pytest.mark.parametrize("name_", ["optimizer_0.w", "lr_scheduler.x", "scheduler.state.w.x", "optim.state.w.x"])
def test_without_keys_state_of_the_run_is_known_by_its_names(name_):
    assert set(select(read(files({("embed.weight",): W, (name_,): W}, planned=False))).names) == {"embed.weight"}


def test_without_keys_what_may_be_either_is_refused():
    folder = files({("embed.weight",): W, ("scaler.scale",): W}, planned=False)
    assert "scaler, state of the run or a part of the model" in refusal(folder, lambda held: select(read(held)))


def test_without_keys_a_tensor_beside_the_model_is_not_in_it():
    found = select(read(files({("model.w",): W, ("w",): W, **OPTIMIZER}, planned=False)))
    assert set(found.names) == {"model.w", "w"}


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("key", ["rng_state", "global_step"])
def test_state_of_the_run_at_the_top_is_left_out(key, planned):
    found = select(read(files({("embed.weight",): W, (key,): Whole("I64", ())}, planned=planned)))
    assert (set(found.names), [left.path for left in found.left_out]) == ({"embed.weight"}, [key])


def test_a_tensor_in_the_model_may_be_called_like_state_of_the_run():
    assert set(select(read(files({("model", "scaler"): W, ("model", "w"): W}))).names) == {"scaler", "w"}


def test_one_list_of_chunks_for_many_tensors_is_refused():
    """A pickle of 10 kB, and a million chunks without elements."""
    chunks = dcp.list_of(box((0,), (0,)) + b"q\xf0", *[b"h\xf0"] * 999) + b"q\xf1"
    fields = {"properties": dcp.properties("float32"), "size": dcp.sizes((0,))}
    first, *others = (
        dcp.made(dcp.METADATA, "TensorStorageMetadata", **fields, chunks=held) for held in (chunks, b"h\xf1")
    )
    document = metadata([("w0", first), *((f"w{place}", others[0]) for place in range(1, 1000))], [])
    assert "is cut into too many chunks" in refusal({METADATA: document}, entries, MalformedFile)


def test_keys_longer_than_any_name_are_refused():
    keys = dcp.tuple_of(text("x" * 1000) + b"q\xf0", *[b"h\xf0"] * 63)
    document = metadata([("w", described("F32", (), []))], [], [("w", keys)])
    assert "has keys of more than" in refusal({METADATA: document}, read, MalformedFile)
