"""ZeRO checkpoints written by hand, so that any part of them can be wrong; whole ones: tests/oracles/test_zero_builds."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from repokit.builder.checkpoints.sources import open_checkpoint
from repokit.builder.checkpoints.zero_weights import zero_weights
from repokit.errors import InputError, MalformedFile, MissingInput, RepokitError, UnsupportedSource
from repokit.repo.directory import Directory
from repokit.repo.repository import Repository

STEP = "global_step4"
MODEL = f"{STEP}/mp_rank_00_model_states.pt"
EMBEDDING, NORM, HEAD, BUFFER = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.scale"

# ------------------------------------------------------------------------------------------------ torch files by hand


class Tensor(NamedTuple):
    """A tensor of float32, or of the bytes of another storage class."""

    values: tuple[float, ...]
    shape: tuple[int, ...]
    storage: str = "FloatStorage"


class Call(NamedTuple):
    """What a pickle would call."""

    module: str
    name: str
    arguments: tuple[Any, ...] = ()


class Name(NamedTuple):
    module: str
    name: str


def saved(value: Any) -> bytes:
    """A zip archive as torch.save writes it."""
    storages: list[bytes] = []
    program = b"\x80\x02" + pickled(value, storages) + b"."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        members = [("data.pkl", program), ("byteorder", b"little"), ("version", b"3\n")]
        for name, content in [*members, *((f"data/{key}", raw) for key, raw in enumerate(storages))]:
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
    return buffer.getvalue()


def pickled(value: Any, storages: list[bytes]) -> bytes:
    def of(*values: Any) -> bytes:
        return b"".join(pickled(one, storages) for one in values)

    match value:
        case None | True | False:
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int():
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes([len(raw)]) + raw
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case Name():
            return f"c{value.module}\n{value.name}\n".encode()
        case Call():
            return of(Name(value.module, value.name), tuple(value.arguments)) + b"R"
        case Tensor():
            return tensor(value, storages)
        case dict():
            return b"}(" + b"".join(of(key, one) for key, one in value.items()) + b"u"
        case list():
            return b"](" + of(*value) + b"e"
        case tuple():
            return b"(" + of(*value) + b"t"
    raise AssertionError(value)


def tensor(value: Tensor, storages: list[bytes]) -> bytes:
    storages.append(struct.pack(f"<{len(value.values)}f", *value.values))
    strides, step = [], 1
    for length in reversed(value.shape):
        strides.insert(0, step)
        step *= length
    stored = ("storage", Name("torch", value.storage), str(len(storages) - 1), "cpu", step)
    persistent = pickled(stored, storages) + b"Q"
    rest = b"".join(pickled(one, storages) for one in (0, value.shape, tuple(strides), False, {}))
    return pickled(Name("torch._utils", "_rebuild_tensor_v2"), storages) + b"(" + persistent + rest + b"tR"


# ------------------------------------------------------------------------------------------------ a model of 14 values

VALUES = {EMBEDDING: ((4, 2), tuple(range(8))), NORM: ((3,), (10, 11, 12)), BUFFER: ((3,), (20, 21, 22))}


def held(name: str) -> Tensor:
    shape, values = VALUES[name]
    return Tensor(values, shape)


def states(**changes: Any) -> dict[str, Any]:
    """What is in a file of model states in stage 3; a change of `...` takes a key away."""
    found = {
        "module": {EMBEDDING: Tensor((), (0,)), NORM: Tensor((), (0,)), HEAD: Tensor((), (0,)), BUFFER: held(BUFFER)},
        "buffer_names": [BUFFER],
        "param_shapes": [{EMBEDDING: (4, 2), NORM: (3,)}],
        "frozen_param_shapes": {},
        "frozen_param_fragments": {},
        "shared_params": {HEAD: EMBEDDING},
        "mp_world_size": 1,
        "optimizer": None,
        "ds_config": {"bf16": {"enabled": True}},
        **changes,
    }
    return {key: value for key, value in found.items() if value is not ...}


def optimizer(rank: int, **changes: Any) -> dict[str, Any]:
    """What is in the file of a rank's optimizer states: of two ranks in stage 3, padding filled with 99."""
    flat = ((0, 1, 2, 3, 10, 11), (4, 5, 6, 7, 12, 99))[rank]
    found = {
        "zero_stage": Call("deepspeed.runtime.zero.config", "ZeroStageEnum", (3,)),
        "loss_scaler": Call("deepspeed.runtime.fp16.loss_scaler", "LossScaler"),
        "partition_count": 2,
        "fp32_flat_groups": [Tensor(flat, (6,))],
        **changes,
    }
    return {"optimizer_state_dict": {key: value for key, value in found.items() if value is not ...}}


def model_file(rank: int) -> str:
    return f"{STEP}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt"


def optimizer_file(rank: int) -> str:
    return f"{STEP}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def stage_3() -> dict[str, Any]:
    files: dict[str, Any] = {"latest": STEP, "zero_to_fp32.py": ""}
    for rank in range(2):
        files |= {model_file(rank): states(), optimizer_file(rank): optimizer(rank)}
    return files


def stage_2() -> dict[str, Any]:
    """The module whole, in a dtype of its own, and the optimizer's parameters in two shares."""
    module = {name: held(name)._replace(storage="IntStorage") for name in VALUES}
    files: dict[str, Any] = {"latest": STEP, MODEL: states(module=module, shared_params={})}
    for rank, flat in enumerate([(0, 1, 2, 3, 4, 5), (6, 7, 10, 11, 12)]):
        changes = {"partition_count": [2], "zero_stage": 2, "fp32_flat_groups": ...}
        flats = [Tensor(flat, (len(flat),))]
        files[optimizer_file(rank)] = optimizer(rank, single_partition_of_fp32_groups=flats, **changes)
    return files


@pytest.fixture
def checkpoint(workshop):
    """Writes these files beside a config.json."""

    def write(files):
        root = workshop.checkpoint()
        (root / "model.safetensors").unlink()
        for path, content in files.items():
            (root / path).parent.mkdir(exist_ok=True)
            raw = (
                content
                if isinstance(content, bytes)
                else content.encode()
                if isinstance(content, str)
                else saved(content)
            )
            (root / path).write_bytes(raw)
        return root

    return write


def values(root, **how):
    """Name to shape and float32 values."""
    weights = zero_weights(root, Repository(Directory(root)), **how)
    found = {}
    for name, at in weights.tensors.items():
        raw = b"".join(map(bytes, weights.contents(at)))
        found[name] = (at.shape, struct.unpack(f"<{len(raw) // 4}f", raw))
    return found


def refusal(root, expected=InputError):
    with pytest.raises(expected) as caught:
        values(root)
    return caught.value


# ------------------------------------------------------------------------------------------------ what is read


def test_shares_are_merged_and_padding_is_cut(checkpoint):
    assert values(checkpoint(stage_3())) == {**VALUES, HEAD: VALUES[EMBEDDING]}


def test_names_keep_the_order_of_the_module(checkpoint):
    assert list(values(checkpoint(stage_3()))) == [EMBEDDING, NORM, HEAD, BUFFER]


def test_a_whole_module_is_preferred(checkpoint):
    weights = zero_weights(root := checkpoint(stage_2()), Repository(Directory(root)))
    assert {at.dtype for at in weights.tensors.values()} == {"I32"}


def test_the_optimizers_parameters_are_taken_where_they_are_wanted(checkpoint):
    found = values(checkpoint(stage_2()), dtype="float32")
    assert found == VALUES


def test_a_module_needs_no_optimizer(checkpoint):
    files = stage_2()
    assert list(values(checkpoint({path: files[path] for path in ("latest", MODEL)}))) == list(VALUES)


def test_frozen_parameters_are_merged_from_the_model_states(checkpoint):
    files = stage_3()
    for rank in range(2):
        frozen = {
            "frozen_param_shapes": {NORM: (3,)},
            "frozen_param_fragments": {NORM: Tensor(((10, 11), (12, 99))[rank], (2,))},
        }
        files[model_file(rank)] = states(param_shapes=[{EMBEDDING: (4, 2)}], **frozen)
        files[optimizer_file(rank)] = optimizer(
            rank, fp32_flat_groups=[Tensor(((0, 1, 2, 3), (4, 5, 6, 7))[rank], (4,))]
        )
    assert values(checkpoint(files))[NORM] == VALUES[NORM]


def test_ranks_are_in_the_order_of_their_numbers(checkpoint):
    """Rank 10 comes after rank 9, not after rank 1."""
    files = {"latest": STEP}
    for rank in range(11):
        files[model_file(rank)] = states(
            module={EMBEDDING: Tensor((), (0,))}, param_shapes=[{EMBEDDING: (11,)}], buffer_names=[], shared_params={}
        )
        files[optimizer_file(rank)] = optimizer(0, partition_count=11, fp32_flat_groups=[Tensor((rank,), (1,))])
    assert values(checkpoint(files)) == {EMBEDDING: ((11,), tuple(range(11)))}


@pytest.mark.parametrize("latest", [None, STEP, f"{STEP}\n"])
def test_the_step_is_found(checkpoint, latest):
    files = stage_3() | {"latest": latest}
    assert len(values(checkpoint({path: content for path, content in files.items() if content is not None}))) == 4


def test_a_step_is_a_checkpoint_itself(checkpoint):
    assert len(values(checkpoint(stage_3()) / STEP)) == 4


def test_latest_says_which_of_two_steps_is_meant(checkpoint):
    older = {path.replace(STEP, "global_step2"): content for path, content in stage_3().items()}
    older["global_step2/zero_pp_rank_0_mp_rank_00_model_states.pt"] = b"broken"
    assert len(values(checkpoint(older | stage_3()))) == 4


def test_a_directory_of_other_weights_is_none(workshop):
    root = workshop.checkpoint()
    assert zero_weights(root, Repository(Directory(root))) is None


def test_a_build_reads_it(checkpoint, workshop):
    checkpoint(stage_3())
    workshop.build(weights={"dtype": "bfloat16"})
    assert {name: (dtype, shape) for name, (dtype, shape, _) in workshop.tensors().items()} == {
        EMBEDDING: ("BF16", (4, 2)), HEAD: ("BF16", (4, 2)), NORM: ("BF16", (3,)), BUFFER: ("BF16", (3,)),
    }  # fmt: skip


def test_float32_asks_for_the_optimizers_parameters(checkpoint, workshop):
    checkpoint(stage_2())
    workshop.build(weights={"dtype": "float32"})
    found = workshop.tensors()
    assert (found[EMBEDDING][0], found[NORM][0]) == ("F32", "F32")


def test_model_safetensors_beside_it_is_the_model(checkpoint):
    root = checkpoint(stage_3())
    (root / "model.safetensors").write_bytes(b"")
    assert open_checkpoint(root).weights.files == ("model.safetensors",)


def test_the_plan_says_what_was_taken(checkpoint, workshop):
    checkpoint(stage_3())
    (told, *_) = workshop.plan().warnings
    assert told == (
        "the weights are the optimizer's parameters (float32), merged from 2 ranks of ZeRO stage 3; "
        "the model was trained in bfloat16: weights.dtype: bfloat16 casts them"
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_cast_that_is_asked_for_is_not_advised(checkpoint, workshop, dtype):
    checkpoint(stage_3())
    (told, *_) = workshop.plan(weights={"dtype": dtype}).warnings
    assert told.endswith("merged from 2 ranks of ZeRO stage 3")


def test_placeholders_beside_the_shares_are_told_apart(checkpoint, workshop):
    """ZeRO-3 without gathering leaves a model.safetensors of no elements beside them."""
    root = checkpoint(stage_3())
    workshop.write_safetensors(root / "model.safetensors", {EMBEDDING: ("F32", (0,), b"")})
    with pytest.raises(MissingInput, match="of no elements") as caught:
        workshop.plan()
    assert "move model.safetensors away" in caught.value.hint


def test_what_stays_behind_is_told_once_for_all_ranks(checkpoint, workshop):
    checkpoint(stage_3())
    told = {left.path: left.reason for left in workshop.plan().left_out}
    assert told[f"{optimizer_file(0)}: optimizer_state_dict.loss_scaler"].endswith("and of 1 other rank")


# ------------------------------------------------------------------------------------------------ what is missing


@pytest.mark.parametrize("rank", [0, 1])
def test_a_missing_rank_is_named(checkpoint, rank):
    files = stage_3()
    del files[optimizer_file(rank)]
    error = refusal(checkpoint(files), MissingInput)
    assert error.what == f"lacks the optimizer states of rank {rank}, of 2 ranks"


@pytest.mark.parametrize("rank", [0, 1])
def test_missing_model_states_are_named(checkpoint, rank):
    files = stage_3()
    del files[model_file(rank)]
    assert f"lacks the model states of rank {rank}" in refusal(checkpoint(files), MissingInput).what


def test_no_model_states_at_all_are_named(checkpoint):
    files = {path: content for path, content in stage_3().items() if "model_states" not in path}
    assert "mp_rank_00_model_states.pt" in refusal(checkpoint(files), MissingInput).what


def test_placeholders_without_an_optimizer_are_no_weights(checkpoint):
    files = {path: content for path, content in stage_3().items() if "optim_states" not in path}
    assert "no values for 2 parameters" in refusal(checkpoint(files), MissingInput).what


def test_parameters_whose_values_are_nowhere_are_named(checkpoint):
    files = stage_3()
    for rank in range(2):
        files[model_file(rank)] = states(shared_params={})
    error = refusal(checkpoint(files), MalformedFile)
    assert HEAD in error.what
    assert "frozen" in error.why


def test_a_step_that_latest_names_and_that_is_not_there(checkpoint):
    error = refusal(checkpoint(stage_3() | {"latest": "global_step9"}), MissingInput)
    assert "global_step9" in error.what
    assert STEP in error.hint


def test_two_steps_without_latest(checkpoint):
    files = {
        path.replace(STEP, step): content for step in ("global_step2", STEP) for path, content in stage_3().items()
    }
    del files["latest"]
    assert "2 ZeRO checkpoints" in refusal(checkpoint(files)).what


# ------------------------------------------------------------------------------------------------ what does not fit


def changed(rank, **changes):
    files = stage_3()
    files[optimizer_file(rank)] = optimizer(rank, **changes)
    return files


@pytest.mark.parametrize("rank", [0, 1])
def test_a_flat_tensor_cut_short_is_named_with_its_rank(checkpoint, rank):
    error = refusal(checkpoint(changed(rank, fp32_flat_groups=[Tensor((0,) * 5, (5,))])), MalformedFile)
    assert error.path == optimizer_file(rank)
    assert "its share of the parameters is 6" in error.what


def test_ranks_of_two_runs_are_named(checkpoint):
    error = refusal(checkpoint(changed(1, partition_count=3)), MalformedFile)
    assert (error.path, "partition_count" in error.what) == (optimizer_file(1), True)


def test_ranks_of_two_stages_are_named(checkpoint):
    assert "zero_stage" in refusal(checkpoint(changed(1, zero_stage=2)), MalformedFile).what


def test_a_rank_beyond_the_last_one_is_named(checkpoint):
    files = stage_3() | {optimizer_file(2): optimizer(0)}
    error = refusal(checkpoint(files))
    assert error.path == optimizer_file(2)


def test_two_files_of_one_rank_are_named(checkpoint):
    files = stage_3()
    files[optimizer_file(0).replace("bf16_", "")] = optimizer(0)
    assert "is of rank 0, and so is" in refusal(checkpoint(files)).what


def test_model_states_of_two_stages_are_named(checkpoint):
    error = refusal(checkpoint(stage_3() | {MODEL: stage_2()[MODEL]}))
    assert (error.path, model_file(0) in error.what) == (MODEL, True)


def test_shared_parameters_may_lead_to_one_another(checkpoint):
    files = stage_3()
    files[model_file(0)] = states(shared_params={"tied": HEAD, HEAD: EMBEDDING})
    assert values(checkpoint(files))["tied"] == VALUES[EMBEDDING]


@pytest.mark.parametrize("shared", [{HEAD: "nowhere"}, {HEAD: "other", "other": HEAD}], ids=str)
@pytest.mark.parametrize("whole", [True, False])
def test_shared_parameters_that_lead_nowhere_are_refused(checkpoint, shared, whole):
    files = stage_2() if whole else stage_3()
    files[MODEL if whole else model_file(0)]["shared_params"] = shared
    refusal(checkpoint(files), MalformedFile)


def test_a_parameter_without_elements_and_no_flat_tensor_are_refused(checkpoint):
    files = stage_3()
    for rank in range(2):
        frozen = {"frozen_param_shapes": {NORM: (3,)}, "frozen_param_fragments": {NORM: Tensor((1, 2), (2,))}}
        files[model_file(rank)] = states(param_shapes=[{EMBEDDING: (0, 2)}], **frozen)
        files[optimizer_file(rank)] = optimizer(rank, fp32_flat_groups=[])
    assert refusal(checkpoint(files), MalformedFile).what == "has no flat tensors"


def test_a_shape_that_the_module_does_not_have_is_named(checkpoint):
    files = stage_2()
    files[MODEL]["param_shapes"] = [{EMBEDDING: (4, 3), NORM: (3,)}]
    assert refusal(checkpoint(files), MalformedFile).place == EMBEDDING


def test_an_absurd_number_of_ranks_is_refused_at_once(checkpoint):
    assert "and 999,999,999,9" in refusal(checkpoint(changed(0, partition_count=10**12)), MissingInput).what


@pytest.mark.parametrize("shape", [(10**12, 10**12), (2**62,), (-1,), (True,), "12", None])
def test_an_absurd_shape_is_refused(checkpoint, shape):
    files = stage_3()
    files[model_file(0)] = states(param_shapes=[{EMBEDDING: shape, NORM: (3,)}])
    refusal(checkpoint(files), MalformedFile)


@pytest.mark.parametrize("name", ["a\0b", "../../etc/passwd", "", "x" * 5000, "\x1b[31m", "__metadata__"])
@pytest.mark.parametrize("key", ["param_shapes", "frozen_param_shapes", "shared_params", "buffer_names"])
def test_a_name_that_is_none_is_refused(checkpoint, name, key):
    wrong = {
        "param_shapes": [{name: (4, 2), NORM: (3,)}],
        "frozen_param_shapes": {name: (2,)},
        "shared_params": {name: EMBEDDING},
        "buffer_names": [name],
    }[key]
    files = stage_3()
    files[model_file(0)] = states(**{key: wrong})
    assert "is the name of a parameter and" in refusal(checkpoint(files), MalformedFile).what


@pytest.mark.parametrize("tag", ["../elsewhere", "/etc", "", ".", "a\0b", "x/y"])
def test_a_tag_that_leads_elsewhere_is_refused(checkpoint, tag):
    assert refusal(checkpoint(stage_3() | {"latest": tag}), MalformedFile).path == "latest"


@pytest.mark.parametrize(
    "changes",
    [
        {"module": ...},
        {"module": Tensor((1,), (1,))},
        {"param_shapes": "all"},
        {"param_shapes": [{EMBEDDING: (4, 2)}, {EMBEDDING: (4, 2)}]},
        {"param_shapes": [[EMBEDDING]]},
        {"frozen_param_fragments": {NORM: 3}},
        {"shared_params": [[HEAD]]},
        {"shared_params": [[HEAD, 3]]},
        {"buffer_names": {BUFFER: 1}},
        {"mp_world_size": "one"},
        {"frozen_param_shapes": {"other": (3,)}},
    ],
    ids=str,
)
def test_model_states_that_are_none_are_refused(checkpoint, changes):
    files = stage_3()
    files[model_file(0)] = states(**changes)
    refusal(checkpoint(files))


@pytest.mark.parametrize(
    "changes",
    [
        {"fp32_flat_groups": ...},
        {"fp32_flat_groups": Tensor((1,), (1,))},
        {"fp32_flat_groups": [3]},
        {"fp32_flat_groups": [Tensor((0,) * 6, (2, 3))]},
        {"fp32_flat_groups": [Tensor((0,) * 6, (6,), "IntStorage")]},
        {"fp32_flat_groups": []},
        {"partition_count": ...},
        {"partition_count": 0},
        {"partition_count": "2"},
        {"partition_count": [2, 4]},
        {"zero_stage": "3"},
        {"param_alignment_paddings": 3},
        {"param_alignment_paddings": [[-1]]},
    ],
    ids=str,
)
def test_optimizer_states_that_are_none_are_refused(checkpoint, changes):
    refusal(checkpoint(changed(0, **changes)))


@pytest.mark.parametrize("path", [model_file(0), model_file(1), optimizer_file(0), optimizer_file(1)])
def test_code_in_any_file_is_refused(checkpoint, path):
    files = stage_3()
    frozen = {"frozen_param_shapes": {NORM: (3,)}} if path == model_file(1) else {}
    files[model_file(0)] = states(param_shapes=[{EMBEDDING: (4, 2)}], **frozen) if frozen else files[model_file(0)]
    if frozen:
        for rank in range(2):
            files[optimizer_file(rank)] = optimizer(rank, fp32_flat_groups=[Tensor((0,) * 4, (4,))])
    files[path] = files[path] | {"args": Call("os", "system", ("true",))}
    error = refusal(checkpoint(files), MalformedFile)
    assert (error.path, "os.system" in error.what) == (path, True)


# ------------------------------------------------------------------------------------------------ other checkpoints

OTHERS = {
    "tensor parallelism": (f"{STEP}/mp_rank_01_model_states.pt", "tensor parallelism", "Megatron-DeepSpeed"),
    "its optimizer": (f"{STEP}/zero_pp_rank_0_mp_rank_01_optim_states.pt", "tensor parallelism", "Megatron-DeepSpeed"),
    "a pipeline": (f"{STEP}/layer_00-model_00-model_states.pt", "pipeline", "convert_neox_to_hf"),
    "experts": (f"{STEP}/layer_3_expert_1_mp_rank_00_model_states.pt", "mixture of experts", "save_16bit_model"),
    "their optimizer": (f"{STEP}/expp_rank_0_mp_rank_00_optim_states.pt", "mixture of experts", "save_16bit_model"),
    "universal": (f"{STEP}/zero/model.norm.weight/fp32.pt", "universal checkpoint", "ds_to_universal"),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("files", [stage_2, stage_3])
def test_another_checkpoint_of_deepspeed_is_refused_by_its_name(checkpoint, other, files):
    path, name, advice = OTHERS[other]
    (root := checkpoint(files())).joinpath(path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(b"")
    error = refusal(root, UnsupportedSource)
    assert (name in error.what, advice in error.hint) == (True, True)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"mp_world_size": 2}, "tensor parallelism"),
        ({"ds_autoep_layers": [{"num_experts": 4}]}, "mixture of experts"),
        ({"num_experts": [4]}, "mixture of experts"),
        ({"module": None}, "no module"),
    ],
)
def test_what_the_file_says_of_itself_is_heeded(checkpoint, changes, name):
    files = stage_2()
    files[MODEL] |= changes
    assert name in refusal(checkpoint(files), UnsupportedSource).what


# ------------------------------------------------------------------------------------------------ damage

FILES = {path: saved(content) for path, content in stage_3().items() if isinstance(content, dict)}


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("left", [0, 1, 100, -1, -100])
def test_a_truncated_file_is_named(checkpoint, path, left):
    files = {**FILES, path: FILES[path][:left]}
    if path == model_file(1):  # read only where something is frozen
        frozen = {"param_shapes": [{EMBEDDING: (4, 2)}], "frozen_param_shapes": {NORM: (3,)}}
        files |= {model_file(0): saved(states(**frozen, frozen_param_fragments={NORM: Tensor((10, 11), (2,))}))}
        files |= {
            optimizer_file(rank): saved(optimizer(rank, fp32_flat_groups=[Tensor((0,) * 4, (4,))])) for rank in range(2)
        }
    assert refusal(checkpoint({"latest": STEP, **files})).path == path


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(sorted(FILES)), at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(tmp_path_factory, path, at, byte):
    root = tmp_path_factory.mktemp("damaged")
    (root / STEP).mkdir()
    for name, content in FILES.items():
        raw = bytearray(content)
        if name == path:
            raw[int(at * len(raw))] = byte
        (root / name).write_bytes(raw)
    try:
        found = values(root)
    except RepokitError:
        return
    assert all(len(held) == len(VALUES[name][1]) for name, (_, held) in found.items() if name in VALUES)


def test_nothing_is_written_where_a_rank_is_missing(checkpoint, workshop):
    files = stage_3()
    del files[optimizer_file(1)]
    checkpoint(files)
    with pytest.raises(MissingInput):
        workshop.build()
    assert not workshop.output.exists()
