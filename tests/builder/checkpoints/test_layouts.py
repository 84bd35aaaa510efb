"""What this version does not build from is refused by its name, with advice; what it does, by files that are broken."""

from __future__ import annotations

import io
import json
import os
import tarfile

import pytest

from repokit.builder.checkpoints.layouts import check_supported
from repokit.builder.checkpoints.sources import Role, open_checkpoint, role_of
from repokit.errors import InputError, MalformedFile, MissingInput, UnsupportedSource

CONFIG = "config.json"


@pytest.fixture
def refusal(tmp_path):
    """The error with which a directory of these files is refused."""

    def refuse(files, expected=InputError):
        root = tmp_path / "x"
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(expected) as caught:
            check_supported(open_checkpoint(root))
        return caught.value

    return refuse


# ------------------------------------------------------------------------------------------------ other layouts

UNSUPPORTED = {
    "an optimizer": (["config.json", "optimizer_0/.metadata", "optimizer_0/__0_0.distcp"], "distributed state of an optimizer", "pytorch_model_fsdp_0"),
    "DCP of each process": ([".metadata", "__0.metadata", "__0_0.distcp"][1:], "wrote metadata of their own", "use_collectives=True"),
    "verl FSDP": (["config.json", "model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"], "one file per training rank", "model_merger"),
    "FSDP LOCAL": (["config.json", "pytorch_model_fsdp_rank0.bin"], "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
    "FSDP without DCP": (["config.json", "pytorch_model_fsdp_0_rank0.bin"], "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
    "Megatron": (["latest_checkpointed_iteration.txt", "iter_0000100/mp_rank_00/model_optim_rng.pt"], "Megatron", "Megatron-Bridge"),
    "Megatron, one process": (["model_optim_rng.pt"], "Megatron", "Megatron-Bridge"),
    "NeMo": (["model.nemo"], "NeMo", "Megatron-Bridge"),
    "TensorFlow": (["config.json", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"], "TensorFlow", "save_pretrained"),
    "SavedModel": (["saved_model.pb", "variables/variables.index"], "TensorFlow", "save_pretrained"),
    "torch.export": (["config.json", "model.pt2"], "torch.export", "torch.export.load"),
    "an archive": (["model.tar.gz"], "holds an archive", "unpack it"),
    "Orbax": (["_CHECKPOINT_METADATA", "default/manifest.ocdbt", "default/d/x"], "Orbax", "orbax.checkpoint"),
    "GGUF": (["model-Q4_K_M.gguf"], "GGUF", "kind: gguf"),
    "adapter": (["adapter_config.json", "README.md"], "PEFT adapter", "kind: full merges it"),
    "pickled adapter": (["adapter_config.json", "adapter_model.bin"], "PEFT adapter", "kind: full merges it"),
    "diffusers": (["model_index.json", "unet/config.json", "unet/diffusion_pytorch_model.safetensors"], "diffusers pipeline", "repokit push"),
    "ONNX": (["config.json", "onnx/model.onnx"], "ONNX", "repokit push"),
    "Keras": (["config.json", "tf_model.h5"], "Keras weights", "from_tf=True"),
    "Keras 3": (["config.json", "model.keras"], "Keras weights", "export_to_transformers"),
    "Flax": (["config.json", "flax_model.msgpack"], "Flax weights", "from_flax=True"),
}  # fmt: skip


@pytest.mark.parametrize("layout", UNSUPPORTED)
def test_a_layout_is_refused_by_its_name(refusal, layout):
    files, name, _ = UNSUPPORTED[layout]
    assert name in str(refusal(dict.fromkeys(files, b"x"), UnsupportedSource))


@pytest.mark.parametrize("layout", UNSUPPORTED)
def test_a_refusal_says_what_to_do(refusal, layout):
    files, _, advice = UNSUPPORTED[layout]
    assert advice in refusal(dict.fromkeys(files, b"x"), UnsupportedSource).hint


def test_gguf_files_are_no_full_model(workshop):
    root = workshop.checkpoint(files={"model-Q4_K_M.gguf": "x"})
    (root / "model.safetensors").unlink()
    with pytest.raises(UnsupportedSource, match="holds GGUF files"):
        workshop.plan(kind="full")


def test_a_part_of_a_diffusers_pipeline_is_refused(workshop):
    root = workshop.checkpoint(config={"_diffusers_version": "0.35.0"})
    (root / "model.safetensors").rename(root / "diffusion_pytorch_model.safetensors")
    with pytest.raises(UnsupportedSource, match="diffusers"):
        workshop.plan()


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": {"quant_method": "gptq"}},
        {"compression_config": {"quant_method": "gptq"}},
        {"text_config": {"quantization_config": {"quant_method": "gptq"}}},
    ],
)
def test_a_quantized_model_is_refused_as_a_full_one(workshop, config):
    workshop.checkpoint(config=config)
    with pytest.raises(UnsupportedSource, match=r"is quantized \(gptq\)") as error:
        workshop.plan(kind="full")
    assert "kind: quantized" in error.value.hint


def test_an_output_directory_names_its_best_checkpoint(refusal):
    state = json.dumps({"best_model_checkpoint": "/x/checkpoint-20"})
    files = {"checkpoint-20/model.safetensors": "x", "checkpoint-100/trainer_state.json": state}
    error = refusal(files)
    assert "is an output directory with 2 checkpoints" in str(error)
    assert error.hint.endswith("/checkpoint-20")


# ------------------------------------------------------------------------------------------------ nothing to build


@pytest.mark.parametrize("files", [{CONFIG: "{}"}, {"README.md": "x"}, {CONFIG: "{}", "optimizer.pt": "x"}])
def test_a_directory_without_weights_is_refused(refusal, files):
    assert "has no weights" in str(refusal(files, MissingInput))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_tar_archive_under_the_name_of_a_pickle_is_named(refusal, name):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))
    assert "is a tar archive, as torch before 0.1.10" in str(refusal({CONFIG: "{}", name: buffer.getvalue()}))


def test_weights_without_a_config_are_refused(workshop):
    (workshop.checkpoint() / CONFIG).unlink()
    with pytest.raises(MissingInput, match=r"has weights and no config\.json"):
        workshop.plan()


def test_weights_under_a_name_of_their_own_are_refused(workshop):
    root = workshop.checkpoint()
    (root / "model.safetensors").rename(root / "weights.safetensors")
    with pytest.raises(InputError, match=r"has weights that no loader looks for: weights\.safetensors"):
        workshop.plan()


def test_two_sets_of_weights_are_refused(workshop):
    workshop.checkpoint(shards=3)
    workshop.checkpoint()
    with pytest.raises(InputError, match="two sets of weights"):
        workshop.plan()


def test_one_variant_is_built_under_the_plain_name(workshop):
    root = workshop.checkpoint()
    (root / "model.safetensors").rename(root / "model.fp16.safetensors")
    workshop.build()
    assert workshop.tensors() == workshop.model()
    assert (workshop.output / "model.safetensors").is_file()


def test_several_variants_are_refused(workshop):
    root = workshop.checkpoint()
    (root / "model.fp16.safetensors").write_bytes((root / "model.safetensors").read_bytes())
    (root / "model.safetensors").rename(root / "model.bf16.safetensors")
    with pytest.raises(InputError, match="has 2 variants of its weights"):
        workshop.plan()


def test_a_variant_beside_the_plain_weights_is_left_out(workshop):
    root = workshop.checkpoint()
    (root / "model.fp16.safetensors").write_bytes((root / "model.safetensors").read_bytes())
    assert [file.path for file in workshop.plan().left_out] == ["model.fp16.safetensors"]


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MissingInput, match="does not exist"):
        open_checkpoint(tmp_path / "nowhere")


def test_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(MissingInput, match="is empty"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b"x"), os.mkfifo])
def test_what_is_no_directory_is_refused(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises(UnsupportedSource, match="is neither a directory nor a file of weights"):
        open_checkpoint(tmp_path / "x")


@pytest.mark.parametrize("inside", [".", "deeper"])
def test_a_directory_that_may_not_be_read_is_refused(tmp_path, nobody, inside):
    root = tmp_path / "x"
    (root / inside).mkdir(parents=True)
    root.chmod(0)
    nobody()
    with pytest.raises(MissingInput, match=r"cannot be (read|listed): Permission denied"):
        open_checkpoint(root / inside)


# ------------------------------------------------------------------------------------------------ broken weights


def test_a_truncated_file_is_refused(workshop):
    weights = workshop.checkpoint() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(MalformedFile, match=r"model\.safetensors: is truncated"):
        workshop.plan()


def test_a_pointer_is_refused_by_its_name(workshop):
    weights = workshop.checkpoint() / "model.safetensors"
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(MalformedFile, match="is a Git LFS pointer"):
        workshop.plan()


def test_a_truncated_shard_is_refused(workshop):
    shard = workshop.checkpoint(shards=3) / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(MalformedFile, match=r"model-00002-of-00003\.safetensors: is truncated"):
        workshop.plan()


def test_a_missing_shard_is_refused(workshop):
    (workshop.checkpoint(shards=3) / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(MissingInput, match=r"names 1 shard that is not there: model-00002-of-00003\.safetensors"):
        workshop.plan()


def test_all_shards_missing_are_named(workshop):
    for shard in workshop.checkpoint(shards=3).glob("*.safetensors"):
        shard.unlink()
    with pytest.raises(MissingInput, match="names 3 shards that are not there"):
        workshop.plan()


@pytest.mark.parametrize(
    "shard",
    ["../outside.safetensors", "/etc/passwd", "a/../../x.safetensors", "x.bin", "C:\\x.safetensors", "~/x.safetensors"],
)
def test_a_shard_that_leads_elsewhere_is_refused(workshop, shard):
    write_index(workshop, lambda weight_map: weight_map.update({"model.norm.weight": shard}))
    with pytest.raises(MalformedFile, match=r"which is no \.safetensors file inside the checkpoint"):
        workshop.plan()


def write_index(workshop, change):
    path = workshop.checkpoint(shards=3) / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def test_a_tensor_that_no_shard_holds_is_refused(workshop):
    write_index(workshop, lambda weight_map: weight_map.update(more="model-00001-of-00003.safetensors"))
    with pytest.raises(MalformedFile, match="names 1 tensor that its shards do not hold: more"):
        workshop.plan()


def test_a_tensor_that_two_shards_hold_is_refused(workshop):
    root = workshop.checkpoint(shards=3)
    shards = sorted(root.glob("*.safetensors"))
    first, second = map(workshop.read_safetensors, shards[:2])
    workshop.write_safetensors(shards[0], {**first, next(iter(second)): workshop.tensor("F32", (1,))})
    with pytest.raises(MalformedFile, match="finds 1 tensor in two shards"):
        workshop.plan()


@pytest.mark.parametrize("shard", [None, 7, ["x"]])
def test_a_tensor_that_is_placed_in_no_file_is_refused(workshop, shard):
    write_index(workshop, lambda weight_map: weight_map.update({"model.norm.weight": shard}))
    with pytest.raises(MalformedFile, match=r"places 1 tensor in no file: model\.norm\.weight"):
        workshop.plan()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": 7}', '{"a": 1, "a": 1}']
)
def test_an_index_that_is_none_is_refused(workshop, content):
    (workshop.checkpoint(shards=3) / "model.safetensors.index.json").write_text(content)
    with pytest.raises(MalformedFile, match=r"model\.safetensors\.index\.json"):
        workshop.plan()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": NaN}', '{"a": 1, "a": 1}'])
def test_a_config_that_is_none_is_refused(workshop, content):
    (workshop.checkpoint() / CONFIG).write_text(content)
    with pytest.raises(MalformedFile, match=r"config\.json"):
        workshop.plan()


# ------------------------------------------------------------------------------------------------ roles

ROLES = {
    "model.safetensors": Role.WEIGHTS,
    "model-00001-of-00002.safetensors": Role.WEIGHTS,
    "model.safetensors.index.json": Role.WEIGHTS,
    "model.safetensors.index.fp16.json": Role.WEIGHTS,
    "config.json": Role.CONFIG,
    "generation_config.json": Role.CONFIG,
    "tokenizer.json": Role.TOKENIZER,
    "tokenizer.model.v3": Role.TOKENIZER,
    "tekken.json": Role.TOKENIZER,
    "vocab.txt": Role.TOKENIZER,
    "preprocessor_config.json": Role.PROCESSOR,
    "chat_template.jinja": Role.CHAT_TEMPLATE,
    "chat_template.json": Role.CHAT_TEMPLATE,
    "additional_chat_templates/rag.jinja": Role.CHAT_TEMPLATE,
    "README.md": Role.CARD,
    "LICENSE": Role.LICENSE,
    "NOTICE.txt": Role.NOTICE,
    "modeling_x.py": Role.CODE,
    "deep/er/modeling_x.py": Role.CODE,
    "optimizer.pt": Role.TRAINING,
    "optimizer.bin": Role.TRAINING,
    "optimizer_0/x.distcp": Role.TRAINING,
    "scheduler.pt": Role.TRAINING,
    "scaler.pt": Role.TRAINING,
    "sampler_1.bin": Role.TRAINING,
    "rng_state.pth": Role.TRAINING,
    "rng_state_12.pth": Role.TRAINING,
    "random_states_0.pkl": Role.TRAINING,
    "trainer_state.json": Role.TRAINING,
    "training_args.bin": Role.TRAINING,
    "zero_to_fp32.py": Role.TRAINING,
    "latest": Role.TRAINING,
    "global_step12/x.pt": Role.TRAINING,
    "runs/x/events.out.tfevents.17": Role.LOG,
    "wandb/run-1/files/x.yaml": Role.LOG,
    "train.log": Role.LOG,
    "checkpoint-5/optimizer.pt": Role.CHECKPOINT,
    "checkpoint-5/model.safetensors": Role.CHECKPOINT,
    "pytorch_model.bin": Role.PICKLE,
    "consolidated.00.pth": Role.PICKLE,
    "last.ckpt": Role.PICKLE,
    "notes.txt": Role.UNKNOWN,
    ".env": Role.UNKNOWN,
    "deep/config.json": Role.UNKNOWN,
    "deep/model.safetensors": Role.UNKNOWN,
    "checkpoint-x/config.json": Role.UNKNOWN,
    "my_config.json": Role.UNKNOWN,
}


@pytest.mark.parametrize("path", ROLES)
def test_a_file_has_its_role(path):
    assert role_of(path) is ROLES[path]


def test_every_role_is_tested():
    assert set(ROLES.values()) == set(Role)
