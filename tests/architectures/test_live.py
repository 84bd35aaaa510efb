"""Live skeletons: asked of the installed transformers, and read from what was asked before."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors

from repokit import api, cli
from repokit.api.skeletons import live_skeleton
from repokit.architectures import ConfigUnusable, Evidence, Kind, NotCovered, live, member as members
from repokit.architectures.comparison import Form, compare
from repokit.architectures.live import Live, NoAnswer
from repokit.errors import InputError, UsageError
from repokit.linter.examples import single
from repokit.repo.memory import Memory
from repokit.repo.repository import Repository

CONFIG = {"model_type": "tiny", "architectures": ["TinyModel"], "hidden_size": 4}
DERIVED = {
    "outcome": "derived",
    "version": "transformers 5.24.0",
    "date": "2026-11-30",
    "disk": {"embed.weight": [10, 4], "layers.0.up.weight": [8, 4], "layers.1.up.weight": [16, 4], "position": [1]},
    "memory": None,
    "kinds": {"embed.weight": "e", "layers.0.up.weight": "l", "layers.1.up.weight": "l", "position": "B"},
    "facts": {"prefix": "model", "tied": [["head.weight", "embed.weight"]], "ignore_unexpected": [r"rotary"]},
    "config": {"model_type": "tiny", "hidden_size": 4, "vision": {"depths": [1, 2]}, "labels": [{}]},
}


class Kept(dict[tuple[str, ...], bytes]):
    """A cache in memory."""

    def put(self, *key: str, content: bytes) -> None:
        self[key] = content

    def get(self, *key: str) -> bytes | None:  # type: ignore[override]
        return super().get(key)


class Library:
    """Stands for the process: answers always the same, and remembers what it was asked."""

    def __init__(self, answer: Mapping[str, Any] = DERIVED) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []

    def __call__(self, request: Mapping[str, Any], seconds: float) -> bytes:
        self.asked.append(request)
        return json.dumps(self.answer).encode() + b"\n"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setattr(live.importlib.metadata, "version", lambda _name: "5.24.0")
    return Library()


def test_a_live_skeleton_has_what_others_have(library: Library) -> None:
    found = Live(library, Kept()).skeleton(CONFIG)
    assert found.shapes == {
        "embed.weight": (10, 4),
        "layers.0.up.weight": (8, 4),
        "layers.1.up.weight": (16, 4),
        "position": (1,),
    }
    assert (found.evidence, found.prefix, found.memory) == (Evidence.VERIFIED, "model", None)
    assert found.ignored.search("rotary_emb")
    assert [target for target, _ in found.ties] == ["head.weight"]
    assert found.origin == "derived live with transformers 5.24.0"


def test_its_templates_have_indices_and_kinds(library: Library) -> None:
    found = Live(library, Kept()).skeleton(CONFIG).templates
    up = found["layers.1.up.weight"]
    assert (up.name, up.kind, list(map(str, up.shape))) == ("layers.{i}.up.weight", Kind.LINEAR, ["None", "4"])
    assert found["layers.0.up.weight"] is up
    assert (found["position"].kind, found["position"].integer) == (Kind.BUFFER, True)


def test_its_environment_is_the_config_that_transformers_made(library: Library) -> None:
    environment = Live(library, Kept()).skeleton(CONFIG).environment
    assert (environment["hidden_size"], environment["vision.depths"], environment["labels"]) == (4, (1, 2), None)


def test_the_form_in_memory_is_taken_too(library: Library) -> None:
    fused = {"embed.weight": [10, 4], "layers.0.fused": [8, 4], "layers.1.fused": [16, 4], "position": [1]}
    kinds = {**DERIVED["kinds"], "layers.0.fused": "p", "layers.1.fused": "p"}
    library.answer = {**DERIVED, "memory": fused, "kinds": kinds}
    found = Live(library, Kept()).skeleton(CONFIG)
    difference = compare(found, {name: tuple(shape) for name, shape in fused.items()})
    assert (difference.exact, difference.form) == (True, Form.MEMORY)


# ---------------------------------------------------------------- what is asked, and what is kept


def test_what_was_asked_before_is_not_asked_again(library: Library) -> None:
    asking = Live(library, Kept())
    first = asking.skeleton(CONFIG)
    again = asking.skeleton(dict(reversed(CONFIG.items())))
    assert (len(library.asked), again.shapes, again.origin) == (1, first.shapes, first.origin)


def test_the_dtype_makes_no_other_question(library: Library) -> None:
    asking = Live(library, Kept())
    asking.skeleton({**CONFIG, "dtype": "float32"})
    asking.skeleton({**CONFIG, "torch_dtype": "bfloat16", "_name_or_path": "/home/me/model"})
    assert len(library.asked) == 1


OTHER: list[tuple[dict[str, Any], str | None]] = [({**CONFIG, "hidden_size": 8}, None), (CONFIG, "TinyForCausalLM")]


@pytest.mark.parametrize(("config", "architecture"), OTHER)
def test_another_config_or_class_is_another_question(
    library: Library, config: dict[str, Any], architecture: str | None
) -> None:
    asking = Live(library, Kept())
    asking.skeleton(CONFIG)
    asking.skeleton(config, architecture)
    assert len(library.asked) == 2


def test_another_transformers_is_asked_again(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Live(library, Kept())
    asking.skeleton(CONFIG)
    monkeypatch.setattr(live.importlib.metadata, "version", lambda _name: "5.25.0")
    asking.skeleton(CONFIG)
    assert len(library.asked) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"outcome": "derived"}', b"\xff", b'{"disk": 1}'])
def test_a_damaged_entry_is_asked_again(library: Library, content: bytes) -> None:
    kept = Kept()
    Live(library, kept).skeleton(CONFIG)
    kept.update(dict.fromkeys(kept, content))
    found = Live(library, kept).skeleton(CONFIG)
    assert (len(library.asked), len(found.shapes), list(kept.values()) != [content]) == (2, 4, True)


def test_a_refusal_is_not_kept(library: Library) -> None:
    kept = Kept()
    library.answer = {"outcome": "refused", "what": "transformers refuses it"}
    with pytest.raises(ConfigUnusable):
        Live(library, kept).skeleton(CONFIG)
    assert kept == {}


def test_what_would_reach_code_or_files_is_not_handed_on(library: Library) -> None:
    inner = {"attn_implementation": "someone/kernel", "quantization_config": {}, "hidden_size": 2}
    Live(library, Kept()).skeleton({**CONFIG, "auto_map": {"AutoConfig": "m.C"}, "text_config": inner, "list": [inner]})
    asked = library.asked[0]["config"]
    assert (asked["text_config"], asked["list"]) == ({"hidden_size": 2}, [{"hidden_size": 2}])
    assert set(asked) == {"model_type", "architectures", "hidden_size", "text_config", "list"}


@pytest.mark.parametrize(
    "reference", ["modeling_tiny.TinyModel", "org/name--modeling.TinyModel", [None, "m.TinyModel"]]
)
def test_a_class_of_the_repository_is_refused_by_name(library: Library, reference: object) -> None:
    with pytest.raises(NotCovered, match=r"TinyModel comes with the repository .* never run"):
        Live(library, Kept()).skeleton({**CONFIG, "auto_map": {"AutoModel": reference}})
    assert library.asked == []


ANSWERS = [
    ({"outcome": "unknown", "what": "has no class TinyModel"}, NotCovered, "has no class TinyModel"),
    ({"outcome": "refused", "what": "refuses it: ValueError"}, ConfigUnusable, "refuses it: ValueError"),
    (
        {"outcome": "unusable", "what": "ImportError: libcuda"},
        InputError,
        "could not be imported: ImportError: libcuda",
    ),
]


@pytest.mark.parametrize(("answer", "kind", "told"), ANSWERS)
def test_an_answer_without_tensors_says_why(
    library: Library, answer: dict[str, Any], kind: type[InputError], told: str
) -> None:
    library.answer = answer
    with pytest.raises(kind, match=told) as caught:
        Live(library, Kept()).skeleton(CONFIG)
    assert type(caught.value) is kind


def test_no_answer_says_nothing_of_the_config(library: Library) -> None:
    def silent(_request: object, _seconds: float) -> bytes:
        raise NoAnswer("no answer within 9 s")

    with pytest.raises(NotCovered, match="did not say which tensors it has: no answer within 9 s"):
        Live(silent, Kept()).skeleton(CONFIG)


ENDLESS = [
    ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
    ({"n_layer": 10.0**9}, "n_layer"),
    ({"text_config": {"n_routed_experts": 10**6}}, "text_config.n_routed_experts"),
    ({"depths": [1] * 100_001}, "depths"),
    ({"layer_types": ["full"] * 100_001}, "layer_types"),
]


@pytest.mark.parametrize(("values", "key"), ENDLESS, ids=[key for _, key in ENDLESS])
def test_what_nobody_could_build_is_not_asked_about(library: Library, values: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigUnusable) as caught:
        Live(library, Kept()).skeleton({**CONFIG, **values})
    assert (caught.value.key, library.asked) == (key, [])


@pytest.mark.parametrize("config", [{}, {"model_type": 3}, {"model_type": "tiny"}, {**CONFIG, "architectures": [1]}])
def test_a_config_that_names_no_class_is_not_asked_about(library: Library, config: dict[str, Any]) -> None:
    with pytest.raises(NotCovered):
        Live(library, Kept()).best(config)
    assert library.asked == []


def test_what_is_verified_in_the_data_is_not_asked(library: Library) -> None:
    found = Live(library, Kept()).best({"model_type": "llama"}, "LlamaForCausalLM")
    assert (library.asked, found.origin.startswith("data of ")) == ([], True)


def test_the_libraries_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(UsageError, match="needs torch") as caught:
        api.lint(".", live_skeleton=True)
    assert caught.value.hint == "pip install 'repokit[load]'"


# ---------------------------------------------------------------- with transformers

MOE = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 2,
    "num_experts": 3,
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Derives with the installed transformers, and a cache of this module's own."""
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield live_skeleton


@pytest.mark.oracle
def test_transformers_says_what_it_would_save(derived: Callable[..., Any]) -> None:
    found = derived(MOE)
    assert found.shapes["model.layers.1.mlp.experts.2.up_proj.weight"] == (16, 32)
    assert found.memory.shapes["model.layers.1.mlp.experts.gate_up_proj"] == (3, 32, 32)
    assert found.templates["model.layers.1.mlp.experts.2.up_proj.weight"].kind is Kind.LINEAR
    assert ("lm_head.weight", "model.embed_tokens.weight") in found.ties


@pytest.mark.oracle
def test_a_live_skeleton_is_the_one_in_the_data(derived: Callable[..., Any]) -> None:
    from repokit.architectures import skeleton

    assert derived(MOE).shapes == skeleton(MOE).shapes


HOSTILE = [
    ({"num_hidden_layers": 50_000}, NotCovered, "gives up on it: took more than 4 s"),
    ({"num_hidden_layers": -1, "hidden_size": "wide"}, ConfigUnusable, "refuses it"),
    ({"model_type": "not_a_model"}, NotCovered, "does not know the model type not_a_model"),
    ({"vocab_size": 10**30}, ConfigUnusable, "refuses it"),
    ({"architectures": ["NotAClass"]}, NotCovered, "has no class NotAClass"),
    ({"architectures": ["LlamaForCausalLM"]}, NotCovered, "has LlamaForCausalLM for another model type than qwen3_moe"),
    ({"architectures": ["AutoModelForCausalLM"]}, NotCovered, "has no class"),
    ({"architectures": ["logging"]}, NotCovered, "has no class logging"),
]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("values", "kind", "told"),
    # Each starts torch: one of each kind in every run.
    [
        pytest.param(*case, id=str(case[0]), marks=[pytest.mark.full] * (place > 2))
        for place, case in enumerate(HOSTILE)
    ],
)
def test_what_cannot_be_built_is_refused(
    derived: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    kind: type[InputError],
    told: str,
) -> None:
    monkeypatch.setattr(live, "SECONDS", 4.0)
    with pytest.raises(kind, match=told):
        derived({**MOE, **values})


@pytest.mark.oracle
def test_memory_is_bounded(derived: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MEMORY", 64 << 20)
    with pytest.raises(ConfigUnusable, match="took more than 64 MB"):
        derived({**MOE, "num_hidden_layers": 50_000})


@pytest.mark.oracle
def test_code_of_a_repository_does_not_run(derived: Callable[..., Any], tmp_path: Path) -> None:
    """Not even where the class has a name that transformers knows."""
    trap = tmp_path / "trap"
    (tmp_path / "modeling_trap.py").write_text(f"open({str(trap)!r}, 'w')\nclass Qwen3MoeForCausalLM: ...\n")
    mapped = {"AutoConfig": "modeling_trap.Qwen3MoeConfig", "AutoModel": "modeling_trap.Other"}
    derived({**MOE, "auto_map": mapped, "_name_or_path": str(tmp_path), "hidden_size": 48})
    assert not trap.exists()


# ---------------------------------------------------------------- the command line


@pytest.fixture
def lossy(derived: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository whose weights lack a norm; the data has none of its model type, nor of any other."""
    shapes = dict(derived(MOE).shapes)
    del shapes["model.norm.weight"]
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    buffer = ctypes.create_string_buffer(2 * max(math.prod(shape) for shape in shapes.values()))
    table = {
        name: safetensors.TensorSpec(
            dtype="bfloat16", shape=shape, data_ptr=ctypes.addressof(buffer), data_len=2 * math.prod(shape)
        )
        for name, shape in shapes.items()
    }
    safetensors.serialize_file(table, str(tmp_path / "model.safetensors"), {"format": "pt"})
    monkeypatch.setattr(members, "folder", lambda: tmp_path)
    members.member.cache_clear()
    yield tmp_path
    members.member.cache_clear()


@pytest.mark.oracle
def test_a_lint_asks_where_the_data_says_nothing(lossy: Path) -> None:
    report = api.lint(lossy, live_skeleton=True).report
    assert [finding.names for finding in report.findings if finding.code == "WGT111"] == [("model.norm.weight",)]
    assert report.coverage.skeleton is not None
    assert report.coverage.skeleton.source.startswith("derived live with transformers ")


@pytest.mark.oracle
def test_a_lint_that_was_not_told_to_does_not_ask(lossy: Path) -> None:
    coverage = api.lint(lossy).report.coverage
    assert coverage.skeleton is None
    assert any("no skeleton is known for the model type qwen3_moe" in value for value in coverage.unknown)


@pytest.mark.oracle
def test_the_json_report_names_the_source_of_the_skeleton(lossy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["lint", str(lossy), "--live-skeleton", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["coverage"]["skeleton"]
    assert (found["architecture"], found["evidence"]) == ("Qwen3MoeForCausalLM", "verified")
    assert found["source"].startswith("derived live with transformers ")


@pytest.fixture
def revision(publish: Callable[..., str], hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A repository on the Hub, of a model type that nobody has heard of, one tensor of which is not to be there."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setenv("REPOKIT_CACHE_DIR", str(tmp_path / "cache"))
    files = single()
    config = {**json.loads(files["config.json"]), "model_type": "unheard_of"}
    publish("rehearsal/model", {**files, "config.json": json.dumps(config).encode()})
    return "rehearsal/model"


def test_a_revision_on_the_hub_is_asked_about(revision: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {name: tensor.shape for name, tensor in Repository(Memory(single())).weights.tensors.items()}
    del shapes["model.norm.weight"]
    library.answer = {**DERIVED, "disk": shapes, "kinds": dict.fromkeys(shapes, "p")}
    monkeypatch.setattr("repokit.api.linting.live", lambda: Live(library, Kept()))
    report = api.lint(revision, live_skeleton=True).report
    assert [finding.names for finding in report.findings if finding.code == "WGT112"] == [("model.norm.weight",)]
    assert library.asked[0]["config"]["model_type"] == "unheard_of"
