"""Checkpoints behind an address: built from without a copy, to the bytes that the directory gives."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dcp_writer
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from repokit.builder import reading
from repokit.builder.checkpoints.sources import Role, open_checkpoint
from repokit.builder.draft import draft
from repokit.builder.plan import Plan
from repokit.errors import MissingInput, PlanError, RecipeError, UnsupportedSource
from repokit.formats.urls import Url, place
from repokit.repo.remote_files import Ranges

CANARY = "CANARYx7Kq"


@pytest.fixture
def bucket(monkeypatch, workshop):
    """Puts the folder of the workshop into a store in memory, at memory://bucket."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    system = fsspec.filesystem("memory")

    def fill(*names):
        for name in names or ("checkpoint",):
            for path, content in workshop.contents(workshop.folder / name).items():
                system.pipe_file(f"/bucket/{name}/{path}", content)
        return system

    return fill


@pytest.fixture
def built(workshop):
    """Builds a recipe from the directory, and gives what it holds."""

    def build(**keys):
        workshop.build(force=True, **keys)
        return workshop.contents()

    return build


FILES = {"tokenizer.json": "{}", "LICENSE": "text", "trainer_state.json": '{"global_step": 5}', "optimizer.pt": b"x"}
RECIPES = {
    "as it is": {},
    "cast": {"weights": {"dtype": "bfloat16"}},
    "sharded": {"weights": {"max_shard_size": "1KB"}},
    "one file": {"weights": {"max_shard_size": "5GB", "dtype": "float16", "keep": ["*norm*"]}},
}


@pytest.mark.parametrize("keys", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_build_from_an_address_is_that_from_the_directory(workshop, bucket, built, shards, keys):
    workshop.checkpoint(shards=shards, files=FILES)
    expected = built(**keys)
    bucket()
    assert built(source="memory://bucket/checkpoint", **keys) == expected


def test_file_addresses_are_paths(workshop, built):
    root = workshop.checkpoint(files=FILES)
    expected = built()
    assert built(source=f"file://{root}") == expected


def test_pickles_behind_an_address(workshop, bucket, built):
    torch = pytest.importorskip("torch")
    root = workshop.checkpoint()
    (root / "model.safetensors").unlink()
    base = torch.arange(600, dtype=torch.float32).reshape(20, 30)
    torch.save(
        {"model.a.weight": base, "model.b.weight": base.T, "model.c.weight": base[3:7]}, root / "pytorch_model.bin"
    )
    expected = built()
    bucket()
    assert built(source="memory://bucket/checkpoint") == expected


@pytest.mark.parametrize("source", ["", "/pytorch_model_fsdp_0", "/pytorch_model_fsdp_0/.metadata"])
def test_distributed_weights_behind_an_address(workshop, bucket, built, source):
    # One tensor in two files, cut along its second dimension: parts that interleave.
    chunks = [("__0_0.distcp", (0, 0), (16, 3)), ("__1_0.distcp", (0, 3), (16, 5))]
    written = dcp_writer.files({("model", "lm_head.weight"): dcp_writer.Whole("F32", (16, 8), chunks)})
    root = workshop.checkpoint(files={f"pytorch_model_fsdp_0/{name}": data for name, data in written.items()})
    (root / "model.safetensors").unlink()
    expected = built(source=f"./checkpoint{source}")
    bucket()
    assert built(source=f"memory://bucket/checkpoint{source}") == expected


def test_an_adapter_is_merged_from_addresses(adapters, bucket, built):
    adapters.base()
    adapters.adapter()
    keys = {"kind": "full", "base": {"id": "org/base", "path": "./base"}}
    expected = built(**keys)
    bucket("checkpoint", "base")
    keys["base"]["path"] = "memory://bucket/base"
    assert built(source="memory://bucket/checkpoint", **keys) == expected


def test_small_blocks_give_the_same_bytes(workshop, bucket, built, monkeypatch):
    workshop.checkpoint(shards=2)
    expected = built(weights={"max_shard_size": "1KB"})
    bucket()
    monkeypatch.setattr(Ranges, "BLOCK", 100)
    monkeypatch.setattr(Ranges, "LEAST", 10)
    monkeypatch.setattr(reading, "CHUNK", 64)
    assert built(source="memory://bucket/checkpoint", weights={"max_shard_size": "1KB"}) == expected


def test_the_base_and_parts_of_it_may_lie_behind_addresses(workshop, bucket, built):
    workshop.checkpoint()
    workshop.checkpoint(name="base", files={"tokenizer.json": '{"base": 1}', "NOTICE": "n", "LICENSE": "from the base"})
    keys = {"tokenizer": {"from": "base"}}
    expected = built(base={"path": "./base"}, **keys)
    bucket("base")
    assert built(base={"path": "memory://bucket/base"}, **keys) == expected
    assert (
        built(base={"path": "./base"}, tokenizer={"from": "memory://bucket/base"})["tokenizer.json"] == b'{"base": 1}'
    )


def test_the_text_of_the_license_may_lie_behind_an_address(workshop, bucket):
    workshop.checkpoint(files=FILES)
    bucket()
    workshop.build(license={"id": "apache-2.0", "file": "memory://bucket/checkpoint/LICENSE"})
    assert workshop.read("LICENSE") == b"text"


def test_one_file_of_weights_may_be_named(workshop, bucket, built):
    workshop.checkpoint(files={"other.safetensors": b"junk"})
    expected = built(source="./checkpoint/model.safetensors")
    bucket()
    assert built(source="memory://bucket/checkpoint/model.safetensors") == expected


# ------------------------------------------------------------------------------------------------ what is asked for


@pytest.fixture
def asked(monkeypatch):
    """Ranges that are asked of the store: (path, start, end)."""
    calls = []
    real = MemoryFileSystem.cat_file

    def cat_file(self, path, start=None, end=None, **options):
        calls.append((path.rpartition("/")[2], start or 0, end))
        return real(self, path, start, end, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    return calls


def test_a_plan_reads_headers_only(workshop, bucket, asked):
    header = b'{"w":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}'
    workshop.checkpoint(files={"model.safetensors": len(header).to_bytes(8, "little") + header + bytes(4_000_000)})
    bucket()
    workshop.plan(source="memory://bucket/checkpoint")
    assert [call for call in asked if call[0] == "model.safetensors"] == [("model.safetensors", 0, 256 * 1024)]


def test_a_shard_is_read_with_requests_of_many_megabytes(workshop, bucket, asked):
    workshop.checkpoint({f"w{number:03}": workshop.tensor("U8", (100_000,), number) for number in range(60)})
    bucket()
    plan = workshop.plan(source="memory://bucket/checkpoint")
    asked.clear()
    workshop.carry_out(plan)
    assert len([call for call in asked if call[0] == "model.safetensors"]) <= 2


# ------------------------------------------------------------------------------------------------ what changes, what is not there


def test_a_source_that_was_written_since_is_refused(workshop, bucket):
    workshop.checkpoint()
    system = bucket()
    plan = workshop.plan(source="memory://bucket/checkpoint")
    path = "/bucket/checkpoint/model.safetensors"
    system.pipe_file(path, system.cat_file(path)[:-1] + b"\x01")
    with pytest.raises(PlanError, match=r"memory://bucket/checkpoint/model\.safetensors: has changed since"):
        workshop.carry_out(plan)
    assert not workshop.output.exists()


def test_a_source_that_is_gone_is_named(workshop, bucket):
    workshop.checkpoint()
    system = bucket()
    plan = workshop.plan(source="memory://bucket/checkpoint")
    system.rm("/bucket/checkpoint/model.safetensors")
    with pytest.raises(MissingInput, match=r"model\.safetensors: does not exist"):
        workshop.carry_out(plan)


@pytest.mark.parametrize(
    ("name", "words"), [("model.onnx", "which this version does not build from"), ("notes.txt", "neither a directory")]
)
def test_a_file_of_no_weights_is_refused_for_what_it_is(workshop, bucket, name, words):
    workshop.checkpoint(files={name: b"x"})
    bucket()
    with pytest.raises(UnsupportedSource, match=words):
        workshop.plan(source=f"memory://bucket/checkpoint/{name}")


@pytest.mark.parametrize("source", ["memory://bucket/nothing", "memory://bucket/checkpoint/gone.safetensors"])
def test_what_is_not_there_is_said(workshop, bucket, source):
    workshop.checkpoint()
    bucket()
    with pytest.raises(MissingInput, match="does not exist, or is empty"):
        workshop.plan(source=source)


@pytest.mark.parametrize("name", ["config.json", "model-00002-of-00003.safetensors"])
def test_a_truncated_file_is_refused_before_anything_is_written(workshop, bucket, name):
    workshop.checkpoint(shards=3)
    system = bucket()
    path = f"/bucket/checkpoint/{name}"
    system.pipe_file(path, system.cat_file(path)[:20])
    with pytest.raises(Exception, match=name):
        workshop.build(source="memory://bucket/checkpoint")
    assert not workshop.output.exists()


def test_a_plan_from_a_file_can_be_carried_out(workshop, bucket, built, tmp_path):
    workshop.checkpoint(files=FILES)
    expected = built()
    bucket()
    stored = tmp_path / "plan.json"
    stored.write_text(workshop.plan(source="memory://bucket/checkpoint").anywhere().model_dump_json())
    workshop.carry_out(Plan.read(stored))
    assert workshop.contents() == expected


# ------------------------------------------------------------------------------------------------ where it may not be built


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("memory://bucket/checkpoint", "holds the source"),
        ("memory:///bucket/checkpoint/", "holds the source"),
        ("memory://bucket/checkpoint/dist", "lies inside the source"),
        ("memory://bucket", "is a whole bucket"),
        ("https://host/dist", "nothing can be written"),
        ("hf://org/name", "published to in one commit"),
    ],
)
def test_an_output_that_would_harm_is_refused(workshop, bucket, output, words):
    workshop.checkpoint()
    bucket()
    with pytest.raises(RecipeError, match=words):
        workshop.plan(source="memory://bucket/checkpoint", output=output)


def test_a_source_is_found_behind_both_of_its_names(workshop):
    root = workshop.checkpoint()
    with pytest.raises(RecipeError, match="holds the source"):
        workshop.plan(source=str(root), output=f"file://{root}")


# ------------------------------------------------------------------------------------------------ init


def test_init_of_an_address_says_what_init_of_the_directory_says(workshop, bucket):
    root = workshop.checkpoint(files=FILES)
    bucket()
    here = draft(root, recipe_folder=workshop.folder)
    there = draft(Url.parse("memory://bucket/checkpoint"), recipe_folder=workshop.folder)
    assert there.found == here.found
    assert 'source: "memory://bucket/checkpoint"' in there.text
    assert str(there.source) == "memory://bucket/checkpoint"


def test_init_of_an_output_directory_finds_the_best_checkpoint(workshop, bucket):
    state = {"best_model_checkpoint": "/x/run/checkpoint-5", "best_metric": 0.5, "best_global_step": 5}
    log = {"log_history": [{"step": 5, "eval_loss": 0.5}, {"step": 9, "eval_loss": 0.7}]}
    for step in (5, 9):
        state_of_run = json.dumps(state | log)
        workshop.checkpoint(name=f"run/checkpoint-{step}", files={"trainer_state.json": state_of_run})
    bucket("run")
    found = draft(Url.parse("memory://bucket/run"), recipe_folder=workshop.folder)
    assert [(nested.path, nested.best, nested.metric) for nested in found.nested] == [
        ("checkpoint-5", True, "eval_loss 0.5000"),
        ("checkpoint-9", False, "eval_loss 0.7000"),
    ]
    assert str(found.source) == "memory://bucket/run/checkpoint-5"


# ------------------------------------------------------------------------------------------------ links to single files


class Handler(BaseHTTPRequestHandler):
    """One file, to whoever has the signature; ranges of it, where the server knows them."""

    content = b""
    ranges = True
    requests: list[str]

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        self.server.requests.append((self.command, self.headers.get("Range")))
        if CANARY not in self.path:
            self.send_error(403)
            return
        content = self.server.content
        wanted = self.headers.get("Range") if self.server.ranges else None
        begin, end = 0, len(content)
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(end, int(last) + 1 if last else end)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.send_header("ETag", '"first"')
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if body:
            self.wfile.write(content[begin:end])

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def web(workshop):
    """A web server that has the weights of the workshop's checkpoint behind a signed link, and lists nothing."""
    pytest.importorskip("aiohttp", reason="fsspec's http needs it")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.ranges = [], True
    server.content = (workshop.checkpoint() / "model.safetensors").read_bytes()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.link = f"http://127.0.0.1:{server.server_port}/models/model.safetensors"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_signed_link_to_a_file_of_weights(workshop, built, web):
    keys = {"config": {"from": "./checkpoint"}}
    expected = built(**keys)
    assert built(source=f"{web.link}?X-Amz-Signature={CANARY}", **keys) == expected


def test_the_signature_is_in_no_plan_and_no_output(workshop, web):
    plan = workshop.plan(source=f"{web.link}?X-Amz-Signature={CANARY}", config={"from": "./checkpoint"})
    workshop.carry_out(plan)
    written = b"".join(workshop.contents().values())
    assert CANARY not in plan.anywhere().model_dump_json() + written.decode(errors="replace")


def test_a_link_that_is_refused_does_not_show_its_signature(workshop, web):
    with pytest.raises(MissingInput, match="is not there, or not given out") as caught:
        workshop.plan(source=f"{web.link}?X-Amz-Signature=expiredSignature")
    assert "expiredSignature" not in f"{caught.value} {caught.value.why} {caught.value.hint}"


def test_a_server_that_knows_no_ranges_is_refused(workshop, web):
    web.ranges = False
    with pytest.raises(MissingInput, match="gives no ranges"):
        workshop.build(source=f"{web.link}?X-Amz-Signature={CANARY}", config={"from": "./checkpoint"})
    assert not workshop.output.exists()


def test_a_web_page_is_no_checkpoint(workshop):
    with pytest.raises(UnsupportedSource, match="lists no files"):
        open_checkpoint(place(workshop.folder, "https://host/models/name"))


def test_roles_are_those_of_the_directory(workshop, bucket):
    root = workshop.checkpoint(files=FILES)
    bucket()
    checkpoint = open_checkpoint(Url.parse("memory://bucket/checkpoint"))
    assert checkpoint.roles == open_checkpoint(root).roles
    assert checkpoint.files(Role.TRAINING) == ["optimizer.pt", "trainer_state.json"]
