"""Distributed checkpoints, written by hand; what torch and accelerate write is in tests/oracles/test_distributed_builds.py."""

from __future__ import annotations

import json
import shutil

import dcp_writer
import pytest
from dcp_writer import Whole
from hypothesis import HealthCheck, given, settings, strategies as st

from repokit import api
from repokit.builder.checkpoints.sources import Role, open_checkpoint, role_of
from repokit.errors import InputError, LimitExceeded, MalformedFile, MissingInput, UnsupportedSource

FSDP = "pytorch_model_fsdp_0"
EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


def rows(shape, at, files=("__0_0.distcp", "__1_0.distcp")):
    """Cut in two along the first dimension."""
    rest = shape[1:]
    return [(files[0], (0,) * len(shape), (at, *rest)), (files[1], (at, *(0,) * len(rest)), (shape[0] - at, *rest))]


COLUMNS = [("__0_0.distcp", (0, 0), (16, 3)), ("__1_0.distcp", (0, 3), (16, 5))]
MODEL = {
    EMBEDDING: Whole("F32", (16, 8), rows((16, 8), 8)),
    HEAD: Whole("F32", (16, 8), COLUMNS),
    NORM: Whole("BF16", (8,), rows((8,), 3)),
}
OPTIMIZER = {("optimizer", "state", NORM, "exp_avg"): Whole("F32", (8,), [("__2_0.distcp", (0,), (8,))])}


def under(*keys, model=None):
    return {(*keys, name): whole for name, whole in (MODEL if model is None else model).items()}


@pytest.fixture
def checkpoint(workshop):
    """A checkpoint with these files in a folder of it, and a config, but no other weights."""

    def write(tensors=None, *, folder=FSDP, beside=None, pickled=(), config=True, **files):
        written = dcp_writer.files(under("model") | OPTIMIZER if tensors is None else tensors, pickled, **files)
        inside = f"{folder}/" if folder else ""
        root = workshop.checkpoint(files={f"{inside}{name}": data for name, data in written.items()} | (beside or {}))
        (root / "model.safetensors").unlink()
        if not config:
            (root / "config.json").unlink()
        return root

    return write


def built(workshop, **keys):
    workshop.build(**keys)
    return {name: data for name, (_, _, data) in workshop.tensors().items()}


BYTES = {name: whole.data for name, whole in MODEL.items()}


# ------------------------------------------------------------------------------------------------ what is built


def test_tensors_are_put_together(checkpoint, workshop):
    checkpoint()
    assert built(workshop) == BYTES


@pytest.mark.parametrize("container", [("model",), ("app", "model"), ("state_dict",), ()])
@pytest.mark.parametrize("folder", ["", FSDP, "step-1000"])
def test_the_model_is_found_wherever_it_is(checkpoint, workshop, container, folder):
    checkpoint(under(*container) | OPTIMIZER, folder=folder)
    assert built(workshop) == BYTES


def test_the_prefix_of_a_wrapper_is_taken_off(checkpoint, workshop):
    checkpoint(under("model", model={f"_orig_mod.module.{name}": whole for name, whole in MODEL.items()}))
    assert built(workshop) == BYTES


def test_the_attribute_of_a_lightning_module_is_taken_off(checkpoint, workshop):
    """Its folder holds meta.pt too, a pickle of what is not distributed."""
    model = {f"net.{name}": whole for name, whole in MODEL.items()}
    checkpoint(under("state_dict", model=model), folder="", beside={"meta.pt": b"\x80\x02}."})
    assert built(workshop) == BYTES


def test_parts_that_follow_one_another_are_read_as_they_lie(checkpoint, workshop):
    """No process's rows stand in memory."""
    checkpoint(under("model", model={EMBEDDING: MODEL[EMBEDDING]}))
    (shard,) = (operation for operation in workshop.plan().operations if operation.op == "write-shard")
    assert shard.memory == 0


def test_a_view_in_a_part_is_gathered(checkpoint, workshop):
    """torch saves the strides of what it was given: of a transposed matrix, for example."""
    root = checkpoint(under("model", model={"w.weight": Whole("F32", (2, 3))}))
    stored = dcp_writer.storage("FloatStorage", "0", 6)
    turned = dcp_writer.tensor((2, 3), (1, 2), stored=stored)
    content = dcp_writer.torch_zip(turned, {"0": bytes(range(24))})
    (root / FSDP / "__0_0.distcp").write_bytes(content)
    entries = [("model.w.weight", dcp_writer.described("F32", (2, 3), [dcp_writer.box((0, 0), (2, 3))]))]
    places = [(dcp_writer.index("model.w.weight", (0, 0)), dcp_writer.info("__0_0.distcp", 0, len(content)))]
    planner = [("model.w.weight", dcp_writer.keys("model", "w.weight"))]
    (root / FSDP / ".metadata").write_bytes(dcp_writer.metadata(entries, places, planner))
    assert list(built(workshop)["w.weight"][::4]) == [0, 8, 16, 4, 12, 20]


def test_a_tied_head_is_stored_once(checkpoint, workshop):
    """A distributed checkpoint has both, each with bytes of its own."""
    root = checkpoint(under("model", model={EMBEDDING: MODEL[EMBEDDING], HEAD: Whole("F32", (16, 8), COLUMNS)}))
    config = json.loads((root / "config.json").read_text())
    (root / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert workshop.plan().summary.tied == (HEAD,)


def test_what_is_left_behind_is_listed(checkpoint, workshop):
    checkpoint(pickled=(("step",),))
    left = {left.path: left.reason for left in workshop.plan().left_out}
    assert left[f"{FSDP}: optimizer"] == "1 tensor"
    assert left[f"{FSDP}: step"] == "1 pickled value"


def test_a_file_of_the_optimizer_alone_may_be_missing(checkpoint, workshop):
    (checkpoint() / FSDP / "__2_0.distcp").unlink()
    assert built(workshop) == BYTES


def test_the_folder_of_the_weights_is_a_source(checkpoint, workshop):
    checkpoint()
    assert built(workshop, source=f"./checkpoint/{FSDP}") == BYTES


def test_metadata_is_a_source(checkpoint, workshop):
    checkpoint()
    assert built(workshop, source=f"./checkpoint/{FSDP}/.metadata") == BYTES


def test_a_folder_of_its_own_is_a_source(checkpoint, workshop):
    checkpoint(folder="")
    assert built(workshop, source="./checkpoint/.metadata") == BYTES


def test_a_draft_names_the_folder_that_was_asked_for(checkpoint, workshop):
    checkpoint()
    draft = api.init(workshop.folder / "checkpoint" / FSDP, recipe_folder=workshop.folder)
    assert f"source: ./checkpoint/{FSDP}/.metadata" in draft.text


def test_a_draft_says_where_the_weights_were(checkpoint, workshop):
    checkpoint()
    found = api.init(workshop.folder / "checkpoint", recipe_folder=workshop.folder).found
    assert any(line.startswith("weights       3 tensors, 1.0 kB") and line.endswith("under model") for line in found)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_whole_weights_win(checkpoint, workshop, name):
    root = checkpoint()
    (root / name).write_bytes(b"x")
    assert type(open_checkpoint(root).weights).__name__ != "DcpWeights"


def test_what_whole_weights_leave_unread_is_a_warning(checkpoint, workshop):
    root = checkpoint()
    workshop.write_safetensors(root / "model.safetensors", {HEAD: workshop.tensor("F32", (16, 8))})
    assert open_checkpoint(root).weights.notes == (
        f"{FSDP}/ holds a model too, and is not read; name it to build from it",
    )


def test_they_win_over_another_pickle(checkpoint):
    root = checkpoint(beside={"reward.pt": b"\x80\x02}."})
    assert type(open_checkpoint(root).weights).__name__ == "DcpWeights"


@pytest.mark.parametrize(
    "path",
    [".metadata", "__0_0.distcp", f"{FSDP}/.metadata", f"{FSDP}/__11_3.distcp", "step-5/__0_0.distcp", "meta.pt"],
)
def test_its_files_are_training_state(path):
    """Those that hold the model are read and never copied."""
    assert role_of(path) is Role.TRAINING


# ------------------------------------------------------------------------------------------------ what is refused


def refusal(workshop, expected=InputError, **keys):
    with pytest.raises(expected) as caught:
        workshop.plan(**keys)
    return caught.value


@pytest.mark.parametrize("rank", [0, 1])
def test_a_missing_file_is_named(checkpoint, workshop, rank):
    (checkpoint() / FSDP / f"__{rank}_0.distcp").unlink()
    assert f"lacks 1 file of process {rank}: {FSDP}/__{rank}_0.distcp" in str(refusal(workshop, MissingInput))


def test_the_tensors_of_a_missing_file_are_named(checkpoint, workshop):
    (checkpoint() / FSDP / "__1_0.distcp").unlink()
    assert refusal(workshop).why == f"3 tensors of 3 would have gaps: model.{EMBEDDING}, model.{HEAD}, model.{NORM}"


def test_a_file_that_is_cut_off_is_named(checkpoint, workshop):
    part = checkpoint() / FSDP / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    assert f"{FSDP}/__1_0.distcp: model.{NORM}: is cut off" in str(refusal(workshop, MalformedFile))


def test_missing_metadata_is_named(checkpoint, workshop):
    (checkpoint() / FSDP / ".metadata").unlink()
    error = refusal(workshop, MissingInput)
    assert "has 3 parts of a distributed checkpoint and no .metadata" in str(error)
    assert "cp -r DIR/. TARGET" in error.hint


def test_a_folder_that_is_never_listed_is_refused(checkpoint, workshop):
    checkpoint(folder=".git")
    assert ".git" in str(refusal(workshop, MissingInput, source="./checkpoint/.git"))


def test_metadata_of_each_process_is_refused(checkpoint, workshop):
    root = checkpoint()
    (root / FSDP / ".metadata").rename(root / FSDP / "__0.metadata")
    assert "processes wrote metadata of their own" in str(refusal(workshop, UnsupportedSource))


def test_two_of_them_are_refused(checkpoint, workshop):
    root = checkpoint()
    shutil.copytree(root / FSDP, root / "pytorch_model_fsdp_1")
    error = refusal(workshop)
    assert "holds 2 distributed checkpoints: pytorch_model_fsdp_0, pytorch_model_fsdp_1" in str(error)
    assert error.hint.endswith(FSDP)


def test_one_of_two_is_built_where_it_is_named(checkpoint, workshop):
    root = checkpoint()
    shutil.copytree(root / FSDP, root / "pytorch_model_fsdp_1")
    assert built(workshop, source="./checkpoint/pytorch_model_fsdp_1") == BYTES


@pytest.mark.parametrize("given", ["optimizer_0", "."])
def test_an_optimizer_is_no_model(checkpoint, workshop, given):
    checkpoint(OPTIMIZER, folder="optimizer_0")
    assert "optimizer" in str(refusal(workshop, UnsupportedSource, source=f"./checkpoint/{given}"))


def test_weights_without_a_config_are_refused(checkpoint, workshop):
    checkpoint(config=False)
    assert "has weights and no config.json" in str(refusal(workshop, MissingInput))


def test_metadata_that_is_too_large_is_refused(checkpoint, workshop):
    with (checkpoint() / FSDP / ".metadata").open("r+b") as file:
        file.truncate(2**40)
    assert "are read" in str(refusal(workshop, LimitExceeded))


@pytest.mark.parametrize("what", [b"", b"x", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"])
def test_metadata_that_is_none_is_refused(checkpoint, workshop, what):
    (checkpoint() / FSDP / ".metadata").write_bytes(what)
    assert ".metadata" in str(refusal(workshop, MalformedFile))


@pytest.mark.parametrize("backend", ["torch_dist", "zarr"])
def test_a_distributed_checkpoint_of_megatron_is_refused(checkpoint, workshop, backend):
    document = json.dumps({"sharded_backend": backend, "sharded_backend_version": 1, "common_backend": "torch"})
    checkpoint(folder="", beside={"metadata.json": document, "common.pt": b"\x80\x02}."})
    error = refusal(workshop, UnsupportedSource)
    assert f"is a distributed checkpoint of Megatron ({backend})" in str(error)
    assert "Megatron-Bridge" in error.hint


def test_flat_parameters_of_fsdp_are_refused(checkpoint, workshop):
    checkpoint(under("model", model={"layers.0._flat_param": Whole("F32", (64,))}))
    assert "holds 1 flat parameter of FSDP" in str(refusal(workshop, UnsupportedSource))


def test_two_tensors_of_one_name_are_refused(checkpoint, workshop):
    checkpoint({("model", "a", "b.c"): MODEL[NORM], ("model", "a.b", "c"): MODEL[NORM]})
    assert "twice" in str(refusal(workshop))


def test_what_runs_code_is_refused(checkpoint, workshop, tmp_path):
    canary = tmp_path / "canary"
    attack = dcp_writer.call(dcp_writer.name("os", "system"), dcp_writer.text(f"touch {canary}"))
    (checkpoint() / FSDP / ".metadata").write_bytes(dcp_writer.metadata([("w", attack)], []))
    assert "names os.system, which can run code" in str(refusal(workshop, MalformedFile))
    assert not canary.exists()


def test_nothing_is_written_of_what_is_refused(checkpoint, workshop):
    (checkpoint() / FSDP / "__1_0.distcp").unlink()
    refusal(workshop)
    assert not workshop.output.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    down=st.integers(0, 6),
    right=st.integers(0, 6),
    wide=st.booleans(),
)
def test_any_cut_gives_the_tensor_back(workshop, shape, down, right, wide):
    """Cut in four by a mesh of processes, whatever the cuts; parts without elements among them."""
    down, right = min(down, shape[0]), min(right, shape[1])
    parts = [
        (f"__{place}_0.distcp", (row, column), (rows_, columns))
        for place, (row, rows_, column, columns) in enumerate(
            (row, rows_, column, columns)
            for row, rows_ in ((0, down), (down, shape[0] - down))
            for column, columns in ((0, right), (right, shape[1] - right))
        )
    ]
    kept = {(offsets, sizes): file for file, offsets, sizes in parts if 0 not in sizes}
    whole = Whole("F32" if wide else "BF16", shape, [(file, *cut) for cut, file in kept.items()])
    files = dcp_writer.files({("model", "w.weight"): whole})
    root = workshop.checkpoint(files={f"{FSDP}/{name}": data for name, data in files.items()})
    (root / "model.safetensors").unlink()
    shutil.rmtree(workshop.output, ignore_errors=True)
    assert built(workshop, manifest="off") == {"w.weight": whole.data}
