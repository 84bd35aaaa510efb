"""Torch files as tables of tensors: what is found, what is left out, what is refused, and that nothing runs."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from torch_writer import (
    FOUR_FLOATS,
    ORDERED_DICT,
    Entry,
    archive,
    call,
    dict_of,
    legacy,
    list_of,
    name,
    number,
    parameter,
    program,
    storage,
    tensor,
    text,
    torch_entries,
    torch_zip,
    tuple_of,
)

from repokit.errors import InputError, MalformedFile, UnsupportedSource
from repokit.formats.torch_file import Grade, StoredTensor, check_trusted, read_torch_file, scan
from repokit.formats.torch_tensors import MAX_EXPANDED

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STATE = dict_of(("w", tensor()))
WRITERS = {"zip": torch_zip, "legacy": legacy}
RUN = call(name("os", "system"), text("true"))


def reader(content):
    return lambda offset, length: content[offset : offset + length]


def opened(content, **options):
    return read_torch_file(reader(content), len(content), "model.bin", **options)


def scanned(content):
    return {one.dotted: one.grade for one in scan(reader(content), len(content), "model.bin")}


def refusal(content, kind=InputError, **options):
    with pytest.raises(kind) as caught:
        opened(content, **options)
    return caught.value


def state(**parts):
    return dict_of(*((key.replace("__", "."), part) for key, part in parts.items()))


# ------------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize("form", WRITERS)
def test_a_state_dict_is_a_table_of_tensors(form):
    content = WRITERS[form](STATE)
    file = opened(content)
    found = file.tensors["w"]
    assert (file.format, file.container, file.left_out, file.refused) == (form, "", (), ())
    assert (found.name, found.dtype, found.shape, found.strides) == ("w", "F32", (2, 2), (2, 1))
    assert content[found.offset : found.offset + found.size] == FOUR_FLOATS
    assert (found.storage_offset, found.storage_size) == (found.offset, 16)


@pytest.mark.parametrize("form", WRITERS)
def test_no_byte_of_a_storage_is_read(form):
    content = WRITERS[form](dict_of(("w", tensor((1 << 20,), stored=storage("FloatStorage", "0", 1 << 20)))), big(form))
    found = opened(content).tensors["w"]

    def read(offset, length):
        inside = offset > 1 << 20 and offset < found.offset + found.size and offset + length > found.offset
        assert not inside
        return content[offset : offset + length]

    read_torch_file(read, len(content), "model.bin")


def big(form):
    raw = bytes(4 << 20)
    return {"0": raw} if form == "zip" else {"0": (1 << 20, raw)}


@pytest.mark.parametrize("form", WRITERS)
def test_a_parameter_is_told_from_a_tensor(form):
    tensors = opened(WRITERS[form](state(p=parameter(tensor()), t=tensor()))).tensors
    assert (tensors["p"].is_parameter, tensors["t"].is_parameter) == (True, False)


@pytest.mark.parametrize("form", WRITERS)
def test_tensors_that_share_memory_have_one_storage(form):
    parts = state(one=tensor((2,), (1,)), two=tensor((2,), (2,), offset=1))
    one, two = opened(WRITERS[form](parts)).tensors.values()
    assert one.storage == two.storage
    assert two.offset == one.offset + 4
    assert (one.contiguous, two.contiguous) == (True, False)


def test_the_view_of_a_legacy_storage_begins_where_it_says():
    view = tuple_of(text("view"), number(1), number(2))
    content = legacy(state(w=tensor((2,), stored=storage("FloatStorage", "0", 4, view))))
    found = opened(content).tensors["w"]
    assert content[found.offset : found.offset + found.size] == FOUR_FLOATS[4:12]


def test_a_view_may_not_leave_its_part_of_a_legacy_storage():
    view = tuple_of(text("view"), number(1), number(2))
    content = legacy(state(w=tensor((3,), stored=storage("FloatStorage", "0", 4, view))))
    assert "reaches to element 3" in refusal(content, MalformedFile).what


@pytest.mark.parametrize(
    ("shape", "strides", "size", "span", "contiguous"),
    [
        ((), (), 4, 4, True),
        ((2, 2), (2, 1), 16, 16, True),
        ((2, 2), (1, 2), 16, 16, False),
        ((2,), (3,), 8, 16, False),
        ((1, 4), (7, 1), 16, 16, True),
        ((5, 2), (0, 1), 40, 8, False),
        ((0, 3), (3, 1), 0, 0, True),
    ],
)
def test_size_span_and_contiguity_follow_from_shape_and_strides(shape, strides, size, span, contiguous):
    found = StoredTensor("w", "F32", shape, strides, "0", 0, 0, 16, is_parameter=False)
    assert (found.size, found.span, found.contiguous) == (size, span, contiguous)


def test_pairs_of_float4_are_counted_as_elements():
    stored = storage("UntypedStorage", "0", 16, module="torch.storage")
    part = tensor((4, 4), stored=stored, more=(name("torch", "float4_e2m1fn_x2"),), function="_rebuild_tensor_v3")
    found = opened(torch_zip(state(w=part))).tensors["w"]
    assert (found.dtype, found.shape, found.strides, found.size) == ("F4", (4, 8), (8, 1), 16)


def test_every_other_row_of_float4_pairs_is_unsupported():
    stored = storage("UntypedStorage", "0", 16, module="torch.storage")
    more = (name("torch", "float4_e2m1fn_x2"),)
    part = tensor((2, 4), (8, 1), stored=stored, more=more, function="_rebuild_tensor_v3")
    with pytest.raises(UnsupportedSource, match="side by side"):
        opened(torch_zip(state(w=part)))


def test_a_long_legacy_pickle_is_read_in_pieces():
    padding = list_of(*(text("x" * 1000) for _ in range(3000)))
    content = legacy(dict_of(("model", STATE), ("log", padding)))
    lengths = []

    def read(offset, length):
        lengths.append(length)
        return content[offset : offset + length]

    assert list(read_torch_file(read, len(content), "model.bin").tensors) == ["w"]
    assert sorted(lengths)[-2:] == [1 << 20, len(content)]


# ------------------------------------------------------------------------------------------------ containers

OPTIMIZER = dict_of(
    ("state", dict_of((number(0), dict_of(("exp_avg", tensor()))))), ("param_groups", list_of(dict_of()))
)


@pytest.mark.parametrize(
    ("container", "part"),
    [
        ("", STATE),
        ("state_dict", state(epoch=number(3), state_dict=STATE)),
        ("model", state(model=STATE, optimizer=OPTIMIZER)),
        ("module", state(module=STATE)),
        ("model_state_dict", state(model_state_dict=STATE, loss=tensor((), ()))),
        ("state_dict.state_dict", state(state_dict=state(state_dict=STATE))),
        ("state_dict.model", state(state_dict=state(model=STATE, ema=STATE))),
        ("model", state(model=STATE, ema=STATE)),
        ("ema", state(ema=STATE, step=number(1))),
        ("generator", state(generator=STATE, optimizer=OPTIMIZER)),
        ("model", state(rng_state=tensor(), model=STATE, callbacks=state(x=tensor()))),
    ],
)
def test_the_state_dict_is_found(container, part):
    file = opened(torch_zip(part))
    assert (file.container, list(file.tensors)) == (container, ["w"])


def test_what_is_left_out_is_named():
    part = state(
        epoch=number(3),
        state_dict=state(w=tensor(), _extra_state=call(name("io", "BytesIO"))),
        optimizer_states=list_of(OPTIMIZER, OPTIMIZER),
        hyper_parameters=call(name("argparse", "Namespace")),
        name=text("run\x1b[2J"),
        ema=STATE,
    )
    told = [(left.path, left.what, left.tensors) for left in opened(torch_zip(part)).left_out]
    assert told == [
        ("epoch", "3 (int)", 0),
        ("optimizer_states", "a list of 2 with 2 tensors", 2),
        ("hyper_parameters", "an object of the class argparse.Namespace", 0),
        ("name", r"'run\x1b[2J' (str)", 0),
        ("ema", "a dict of 1 with 1 tensor", 1),
        ("state_dict._extra_state", "an object of the class io.BytesIO", 0),
    ]


@pytest.mark.parametrize("key", ["rng_state", "global_step"])
def test_state_of_the_run_at_the_top_is_left_out(key):
    file = opened(torch_zip(state(**{"w": tensor(), key: tensor((), ())})))
    assert (list(file.tensors), [left.path for left in file.left_out]) == (["w"], [key])


def test_state_of_the_run_alone_is_no_model():
    assert "holds no tensors, but rng_state" in refusal(torch_zip(state(rng_state=tensor())), UnsupportedSource).what


def test_a_tensor_in_the_model_may_be_called_like_state_of_the_run():
    assert list(opened(torch_zip(state(model=state(scaler=tensor())))).tensors) == ["scaler"]


def test_dicts_of_modules_are_joined_by_dots():
    part = state(model=state(encoder=state(w=tensor(), norm=state(b=tensor())), decoder__w=tensor()))
    assert list(opened(torch_zip(part)).tensors) == ["encoder.w", "encoder.norm.b", "decoder.w"]


@pytest.mark.parametrize(
    ("part", "places"),
    [
        (state(model=STATE, state_dict=STATE), "model, state_dict"),
        (state(generator=STATE, discriminator=STATE), "generator, discriminator"),
        (state(layer__w=tensor(), model=STATE), "the top level, model"),
        (state(ema=STATE, model_ema=STATE), "ema, model_ema"),
    ],
)
def test_two_places_are_for_a_person_to_decide(part, places):
    assert places in refusal(torch_zip(part), UnsupportedSource).what


def test_a_person_may_name_the_container():
    file = opened(torch_zip(state(generator=STATE, discriminator=state(v=tensor()))), container="discriminator")
    assert (file.container, list(file.tensors)) == ("discriminator", ["v"])


def test_a_container_that_is_not_there_is_named():
    error = refusal(torch_zip(state(generator=STATE)), UnsupportedSource, container="model")
    assert "'model'" in error.what
    assert "generator" in error.hint


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (call(name("my.module", "Model")), "object of the class my.module.Model"),
        (
            call(name("m", "Net")) + state(_modules=state(w=tensor()), _parameters=dict_of()) + b"b",
            "whole pickled module",
        ),
        (state(model=call(name("m", "Net"))), "model is a whole pickled object of the class m.Net"),
        (tensor(), "one tensor without a name"),
        (list_of(tensor(), tensor()), "a list of 2 with 1 tensor|a list of 2 with 2 tensors"),
        (b"N", "holds None"),
        (dict_of(), "an empty dict"),
        (state(epoch=number(3)), "no tensors, but epoch"),
        (OPTIMIZER, "the state of an optimizer"),
        (state(state_dict=state(state_dict=state(state_dict=state(state_dict=state(model=STATE))))), "deeper than"),
    ],
)
def test_what_is_no_state_dict_is_refused_with_what_it_is(part, words):
    with pytest.raises(UnsupportedSource, match=words):
        opened(torch_zip(part))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (dict_of((number(1), tensor())), r"1 \(int\)"),
        (dict_of(("", tensor())), "is empty"),
        (dict_of(("a\nb", tensor())), "control characters"),
        (dict_of(("../../x", tensor())), "is a path"),
        (dict_of(("/x", tensor())), "is a path"),
        (dict_of(("x" * 2000, tensor())), "2,000 characters"),
        (dict_of(("__metadata__", tensor())), "safetensors"),
        (dict_of(("w", tensor()), ("w", tensor())), "twice"),
        (dict_of(("model", STATE), ("model", STATE)), "twice|2 places"),
        (state(model=dict_of(("a.w", tensor()), ("a", STATE))), "twice"),
    ],
)
def test_names_that_are_none_are_refused(part, words):
    with pytest.raises(InputError, match=words):
        opened(torch_zip(part))


# ------------------------------------------------------------------------------------------------ tensors


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (tensor((100, 100)), "reaches to element 10,000"),
        (tensor((4,), offset=1), "reaches to element 5"),
        (tensor((2, 2), (-2, 1)), "no sizes"),
        (tensor((-2, 2), (2, 1)), "no sizes"),
        (tensor((2, 2), offset=-1), "no sizes"),
        (tensor((2, 2), (2, 1, 1)), "no sizes"),
        (tensor((2**70,), (0,)), "no sizes"),
        (tensor((1,) * 65), "65 dimensions"),
        (tensor((10**6, 10**6), (0, 0)), "repeats 4 bytes to 4.0 TB"),
        (tensor(stored=storage("FloatStorage", "0", 2**62)), "elements"),
        (tensor(stored=storage("FloatStorage", "0", 3)), "expect 12"),
        (tensor(stored=storage("FloatStorage", "1", 4)), "missing"),
        (tensor(stored=storage("FloatStorage", "../version", 4)), "no key"),
        (tensor(stored=storage("EvilStorage", "0", 4)), "does not know"),
        (tensor(stored=storage("FloatStorage", "0", 4, module="evil")), "does not know"),
        (tensor(stored=b"N"), "no storage"),
        (tensor(stored=text("foo") + b"Q"), "no storage"),
        (tensor(hooks=dict_of(("h", b"N"))), "hooks"),
        (call(name("torch._utils", "_rebuild_tensor_v2")), "other arguments"),
        (parameter(b"N"), "no tensor"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused_by_name(part, words):
    with pytest.raises(MalformedFile, match=words):
        opened(torch_zip(state(w=part)))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (tensor((2,), stored=storage("ComplexDoubleStorage", "0", 1)), "complex128"),
        (tensor((2,), stored=storage("QInt8Storage", "0", 16)), "quantized"),
        (call(name("torch._utils", "_rebuild_sparse_tensor")), "sparse"),
        (call(name("torch._utils", "_rebuild_meta_tensor_no_storage")), "meta"),
        (call(name("torch._utils", "_rebuild_wrapper_subclass")), "class of its own"),
        (
            call(name("torch._tensor", "_rebuild_from_type_v2"), name("f", "f"), name("torchao", "Int4"), b")", b"N"),
            "torchao.Int4",
        ),
        (tensor(more=(dict_of(("conj", b"\x88")),)), "resolve_conj"),
    ],
)
def test_a_tensor_that_safetensors_cannot_hold_is_unsupported(part, words):
    with pytest.raises(UnsupportedSource, match=words) as caught:
        opened(torch_zip(state(w=part)))
    assert caught.value.place == "w"


def test_a_bad_tensor_outside_of_the_state_dict_is_left_out():
    part = state(state_dict=STATE, other=state(x=tensor((100, 100))))
    assert list(opened(torch_zip(part)).tensors) == ["w"]


def test_views_that_repeat_their_elements_are_limited_together():
    rows = MAX_EXPANDED // 16 // 2 + 1
    parts = {f"w{index}": tensor((rows, 4), (0, 1)) for index in range(2)}
    with pytest.raises(MalformedFile, match="repeat their elements"):
        opened(torch_zip(state(**parts)))


def test_an_expanded_view_is_read():
    found = opened(torch_zip(state(w=tensor((1000, 4), (0, 1))))).tensors["w"]
    assert (found.size, found.span) == (16_000, 16)


def test_one_storage_of_two_types_is_refused():
    part = state(a=tensor(), b=tensor(stored=storage("IntStorage", "0", 4)))
    assert "two types" in refusal(torch_zip(part), MalformedFile).what


def test_a_compressed_storage_is_refused_by_name():
    entries = torch_entries(program(STATE))
    entries[2] = Entry("archive/data/0", FOUR_FLOATS, deflate=True)
    assert refusal(archive(entries), UnsupportedSource).place == "data/0"


def test_a_compressed_pickle_is_read():
    entries = torch_entries(program(STATE))
    entries[0] = Entry("archive/data.pkl", program(STATE), deflate=True)
    assert list(opened(archive(entries)).tensors) == ["w"]


# ------------------------------------------------------------------------------------------------ formats


def tar_file():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("sys_info"), io.BytesIO())
    return out.getvalue()


def with_member(path, content=b"x"):
    return archive([*torch_entries(program(STATE)), Entry(f"archive/{path}", content)])


def zipped(**members):
    return archive([Entry(path.replace("__", "/"), content) for path, content in members.items()])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (tar_file(), "tar archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(26), "7z"),
        (gzip.compress(program(STATE)), "gzip"),
        (b"\x89HDF\r\n\x1a\n" + bytes(32), "HDF5"),
        (b"\x89PNG\r\n\x1a\n" + bytes(16), "PNG"),
        (b"GGUF" + bytes(20), "GGUF"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{}", "safetensors file under another name"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>", "HTML"),
        (pickle.dumps({"coef_": [1.0]}), "plain pickle"),
        (zipped(a__npy=b"x"), "no data.pkl"),
        (with_member("constants.pkl", program(b")")), "TorchScript"),
        (with_member("code/__torch__.py"), "TorchScript"),
        (with_member("archive_format", b"pt2"), r"torch\.export"),
        (with_member(".data/extern_modules"), r"torch\.package"),
        (torch_zip(STATE, order=b"big"), "big-endian"),
        (torch_zip(STATE, order=b"middle"), "byte order"),
        (legacy(STATE, little_endian=False), "big-endian"),
        (legacy(STATE)[:-1], "truncated"),
        (legacy(STATE) + b"x", "1 bytes behind"),
        (legacy(STATE, {"0": (3, FOUR_FLOATS)}), "3 elements"),
        (legacy(STATE, {"1": (4, FOUR_FLOATS)}), "belongs to no tensor"),
        (legacy(STATE, {}), "missing|behind"),
        (torch_zip(STATE)[:-1], "truncated"),
        (torch_zip(STATE + b".N"), "behind its end"),
        (b"#!/bin/sh\n" + torch_zip(STATE), "before its first member"),
    ],
)
def test_other_files_are_refused_by_what_they_are(content, words):
    with pytest.raises(InputError, match=words):
        opened(content)


# ------------------------------------------------------------------------------------------------ attacks


@pytest.mark.parametrize("form", WRITERS)
def test_a_state_dict_with_an_attack_is_read_and_not_trusted(form):
    file = opened(WRITERS[form](state(w=tensor(), extra=RUN)))
    assert [one.dotted for one in file.refused] == ["os.system"]
    with pytest.raises(MalformedFile, match=r"names os\.system, which can run code"):
        check_trusted(file)


def test_an_ordinary_state_dict_is_trusted():
    check_trusted(opened(torch_zip(STATE)))


def test_an_unknown_class_is_left_out_and_trusted():
    file = opened(torch_zip(state(model=STATE, config=call(name("my.package", "Config")))))
    check_trusted(file)
    assert {one.dotted for one in file.globals if one.grade is Grade.UNKNOWN} == {"my.package.Config"}


def test_an_attack_in_another_member_is_found():
    assert [one.member for one in opened(with_member("sub/data.pkl", program(RUN))).refused] == ["archive/sub/data.pkl"]


@pytest.mark.parametrize(
    "content",
    [
        torch_zip(RUN),
        legacy(RUN),
        program(RUN),
        program(b"N") + program(RUN),
        torch_zip(state(w=tensor(hooks=RUN))),
        with_member("notes.txt", program(RUN)),
        zipped(archive__data__txt=program(RUN)),
        archive([*torch_entries(program(STATE)), *torch_entries(program(RUN))]),
        b"#!/bin/sh\n" + torch_zip(RUN),
        torch_zip(RUN) + b"A" * 100,
        torch_zip(RUN)[:-40],
        torch_zip(RUN[:-1]),
        program(RUN)[:-1] + b"\xff",
        zipped(a=torch_zip(RUN)),
    ],
    ids=range(14),
)
def test_an_attack_is_named_wherever_it_lies(content):
    try:
        found = scanned(content)
    except MalformedFile as error:
        found = {one.dotted: one.grade for one in error.globals}
    assert found["os.system"] is Grade.EXECUTES


@pytest.mark.parametrize("form", [*WRITERS, "raw"])
def test_no_payload_runs(form, tmp_path):
    canary = tmp_path / "canary"
    part = state(w=tensor(), extra=call(name("os", "mkdir"), text(str(canary))))
    content = program(part) if form == "raw" else WRITERS[form](part)
    with pytest.raises(MalformedFile, match=r"os\.mkdir"):
        check_trusted(opened(content))
    assert scanned(content)["os.mkdir"] is Grade.EXECUTES
    assert not canary.exists()


def test_an_attack_is_told_before_the_shape_that_it_came_in():
    assert "os.system" in refusal(torch_zip(RUN), MalformedFile).what


# ------------------------------------------------------------------------------------------------ scanning


def test_a_plain_pickle_is_scanned():
    part = call(name("sklearn.linear_model", "Ridge"))
    assert scanned(program(part)) == {"sklearn.linear_model.Ridge": Grade.UNKNOWN}


def test_a_pickle_that_names_nothing_is_scanned():
    assert scanned(pickle.dumps([1, 2], 4)) == {}


def test_an_array_of_objects_is_scanned():
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + program(RUN)
    assert scanned(content) == {"os.system": Grade.EXECUTES}
    assert scanned(zipped(x__npy=content)) == {"os.system": Grade.EXECUTES}


def test_an_array_of_numbers_in_an_archive_is_no_pickle():
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    assert scanned(zipped(x__npy=b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4))) == {}


def test_text_in_an_archive_is_no_pickle():
    assert scanned(zipped(a__config=b"config\nfor this model\n")) == {}


def test_storages_are_not_taken_for_pickles():
    content = torch_zip(dict_of(("w", tensor((8,), stored=storage("ByteStorage", "0", 8)))), {"0": b"\x80\x02cos\nsy"})
    assert list(opened(content).tensors) == ["w"]
    assert "os" not in "".join(scanned(content))


def test_archives_in_archives_are_followed_only_so_far():
    content = program(RUN)
    for _ in range(6):
        content = zipped(x=content)
    with pytest.raises(MalformedFile, match="too many archives"):
        scanned(content)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" + bytes(16), b"just text", b"\x00" * 64])
def test_what_holds_no_pickle_cannot_be_scanned(content):
    with pytest.raises(MalformedFile):
        scanned(content)


def test_zipfile_agrees_on_the_files_that_the_tests_write():
    with zipfile.ZipFile(io.BytesIO(torch_zip(STATE))) as file:
        assert file.testzip() is None
        assert file.read("archive/data/0") == FOUR_FLOATS


# ------------------------------------------------------------------------------------------------ anything

CORPUS = [
    torch_zip(state(w=tensor(), p=parameter(tensor((2,))))),
    legacy(state(w=tensor(), p=parameter(tensor((2,))))),
    torch_zip(state(epoch=number(3), state_dict=STATE, optimizer=OPTIMIZER)),
    legacy(ORDERED_DICT + b"(" + text("w") + tensor() + b"u"),
]


@FUZZ
@given(st.sampled_from(CORPUS), st.randoms(use_true_random=False))
def test_mutated_files_are_read_or_refused(content, rng):
    mutated = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        mutated[rng.randrange(len(mutated))] = rng.randrange(256)
    read_or_refused(bytes(mutated))


@FUZZ
@given(st.binary(min_size=1, max_size=200), st.sampled_from(CORPUS))
def test_mutated_pickles_in_sound_archives_are_read_or_refused(noise, content):
    rng = random.Random(noise)
    part = bytearray(state(w=tensor(), p=parameter(tensor((2,)))))
    for _ in range(rng.randrange(1, 5)):
        part[rng.randrange(len(part))] = rng.randrange(256)
    read_or_refused(torch_zip(bytes(part)))


def read_or_refused(content):
    """Every tensor that is read lies in the file."""
    try:
        file = opened(content)
    except InputError:
        return
    for found in file.tensors.values():
        assert 0 <= found.storage_offset <= found.offset
        assert found.offset + found.span <= found.storage_offset + found.storage_size <= len(content)
