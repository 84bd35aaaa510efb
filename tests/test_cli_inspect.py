"""`repokit inspect` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repokit.linter.examples import BASES, single


@pytest.fixture
def put(tmp_path: Path):
    """Writes files and gives their directory."""

    def write(files: dict[str, bytes]) -> Path:
        for path, content in files.items():
            place = tmp_path / "model" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return tmp_path / "model"

    return write


def lines(done) -> dict[str, str]:
    """Label to text, of the screen."""
    return {line[2:16].strip(): line[16:] for line in done.stdout.splitlines()[1:]}


def test_a_model_on_one_screen(command, put):
    done = command("inspect", put(single()))
    found = lines(done)
    assert done.returncode == 0, done.stderr
    assert f"model  model, {len(single())} files, " in done.stdout.splitlines()[0]
    assert found["architecture"] == "LlamaForCausalLM (llama)"
    assert found["weights"].endswith("1 file: model.safetensors")
    assert found["output head"] == "a matrix of its own"
    assert found["vocabulary"] == "tokenizer.json, 32 tokens, largest id 31; 32 rows"
    assert found["stops at"] == "4, 2"
    assert found["template"] == "chat_template.jinja, writes <|im_start|>, <|im_end|>"
    assert found["license"] == "apache-2.0"


@pytest.mark.parametrize("base", BASES)
def test_a_screen_holds_it(base, command, put):
    done = command("inspect", put(BASES[base]()))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 24


def test_an_adapter(command, put):
    found = lines(command("inspect", put(BASES["lora"]())))
    assert found["adapter"].startswith("LORA, r ")
    assert "; base " in found["adapter"]
    assert "architecture" not in found


def test_ids_without_a_row_are_pointed_out(command, put):
    files = single()
    config = json.loads(files["config.json"]) | {"vocab_size": 8}
    files = {path: content for path, content in files.items() if not path.endswith(".safetensors")}
    found = lines(command("inspect", put({**files, "config.json": json.dumps(config).encode()})))
    assert found["vocabulary"].endswith("8 rows  too few")


def test_what_is_broken_is_said_on_its_line(command, put):
    done = command("inspect", put({**single(), "model.safetensors": b"<html>", "tokenizer.json": b"{"}))
    found = lines(done)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert found["weights"].startswith("not read: model.safetensors: ")
    assert found["vocabulary"].startswith("not read: tokenizer.json: ")


def test_an_empty_folder_is_no_model(command, tmp_path):
    done = command("inspect", tmp_path)
    assert (done.returncode, lines(done)["license"]) == (0, "unknown: there is no README.md")


def test_names_from_outside_cannot_rewrite_the_screen(command, put):
    config = {"architectures": ["\x1b[2JX"], "model_type": "\x1b[31m\nll"}
    files = {"config.json": json.dumps(config).encode(), "chat_template.jinja": b"<|\x1b[2J|>"}
    done = command("inspect", put(files))
    assert (done.returncode, "\x1b" in done.stdout + done.stderr) == (0, False)


def test_tensors_are_a_table_with_totals(command, put):
    done = command("inspect", put(single()), "--tensors", "layers.0.self_attn.?_proj.weight")
    *rows, total = done.stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [
        [f"model.layers.0.self_attn.{part}_proj.weight", "BF16"] for part in "koqv"
    ]
    assert total.startswith("4 tensors, ")
    assert len({row.index("[") for row in rows}) == 1


def test_no_tensor_of_that_name(command, put):
    done = command("inspect", put(single()), "--tensors", "absent.*")
    assert (done.returncode, done.stdout) == (0, "no tensor has such a name\n")


def test_tensors_of_a_broken_file_are_said_to_be_unread(command, put):
    done = command("inspect", put({**single(), "model.safetensors": b"<html>"}), "--tensors", "*")
    assert "warning: model.safetensors" in done.stderr


def test_json_is_all_of_it(command, put):
    document = json.loads(command("inspect", put(single()), "--json", "--tensors", "lm_head.weight").stdout)
    assert (document["kind"], document["weights"]["dtypes"].keys()) == ("model", {"BF16"})
    assert document["tensors"] == [
        {"name": "lm_head.weight", "dtype": "BF16", "shape": [32, 16], "size": 1024, "file": "model.safetensors"}
    ]


def test_quiet_is_the_kind(command, put):
    assert command("inspect", put(BASES["gptq"]()), "-q").stdout == "quantized model\n"


def test_a_folder_that_is_absent(command):
    done = command("inspect", "./absent")
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)
