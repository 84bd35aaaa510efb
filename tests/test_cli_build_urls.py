"""Sources and outputs behind addresses, as they are typed: in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CANARY = "CANARYw5Rt"


@pytest.fixture
def recipe(checkpoint, tmp_path):
    """Writes a recipe for the demo's checkpoint, with any source and output, and gives its name."""

    def write(source="./run/checkpoint-200", output="./out/name", name="repokit.yaml", **weights):
        keys = {"version": 1, "source": source, "output": output, "license": {"id": "apache-2.0"}, "weights": weights}
        (tmp_path / name).write_text(json.dumps(keys))  # which is YAML too
        return name

    return write


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_from_an_address_to_an_address(command, recipe, tmp_path):
    assert command("build", recipe()).returncode == 0
    source, output = f"file://{tmp_path}/run/checkpoint-200", f"file://{tmp_path}/bucket/name"
    done = command("build", recipe(source, output, "there.yaml"), "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"built {output}: ")
    assert done.stdout.endswith(f"next: repokit lint {output}\n")
    assert contents(tmp_path / "bucket/name") == contents(tmp_path / "out/name")


def test_what_was_built_there_is_linted_as_in_a_directory(command, recipe, tmp_path):
    output = f"file://{tmp_path}/bucket/name"
    assert command("build", recipe(output=output)).returncode == 0
    there = json.loads(command("lint", output, "--json").stdout)
    here = json.loads(command("lint", str(tmp_path / "bucket/name"), "--json").stdout)
    assert there["findings"] == here["findings"]
    assert command("inspect", output).stdout.splitlines()[0].startswith(f"{output}  model")


def test_an_output_on_the_command_line_may_be_an_address(command, recipe, tmp_path):
    output = f"file://{tmp_path}/bucket/name"
    assert command("build", recipe(), "-o", output, "-q").stdout == f"{output}\n"
    assert (tmp_path / "bucket/name/config.json").is_file()


def test_a_plan_with_addresses_is_carried_out_elsewhere(command, recipe, tmp_path):
    output = f"file://{tmp_path}/bucket/name"
    name = recipe(f"file://{tmp_path}/run/checkpoint-200", output)
    assert command("build", name, "--plan", "plan.json").returncode == 0
    (tmp_path / "elsewhere").mkdir()
    done = command("build", "--apply", "../plan.json", cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bucket/name/config.json").is_file()


def test_init_writes_the_address_into_the_recipe(command, checkpoint, tmp_path):
    done = command("init", f"file://{checkpoint}", "-o", "new.yaml")
    assert done.returncode == 0, done.stderr
    assert "source: ./run/checkpoint-200" in (tmp_path / "new.yaml").read_text()


def test_someone_s_files_are_refused_by_a_dry_run_too(command, recipe, tmp_path):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket/notes.txt").write_text("mine")
    name = recipe(output=f"file://{tmp_path}/bucket")
    for arguments in ((name,), (name, "--dry-run")):
        done = command("build", *arguments)
        assert done.returncode == 2
        assert "was not built by repokit" in done.stderr
    assert contents(tmp_path / "bucket") == {"notes.txt": b"mine"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nosuch://bucket/run", "nosuch:// is no protocol that fsspec knows"),
        ("memory://bucket/run", "does not exist, or is empty"),
        ("https://127.0.0.1:9/models", "lists no files"),
        ("zip://a.zip::s3://bucket/b", "is a chain of file systems"),
        (f"s3://KEY:{CANARY}@bucket/run", "has no place for a password"),
        (f"sftp://me:{CANARY}@127.0.0.1:9/run", "sftp://***@127.0.0.1:9/run: "),
    ],
)
def test_what_cannot_be_read_is_said_to_people(command, recipe, source, words):
    done = command("build", recipe(source))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "next" in done.stderr
    assert CANARY not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["init", "lint", "inspect"])
def test_a_package_that_is_missing_is_named(command, verb):
    protocol, package = ("oss", "ossfs")
    if importlib.util.find_spec(package):
        pytest.skip("it is installed here")
    done = command(verb, f"{protocol}://bucket/run")
    assert done.returncode == 2
    assert f"pip install {package}" in done.stderr


@pytest.mark.parametrize("flag", ["--fix", "--diff"])
def test_fixes_are_for_directories(command, checkpoint, flag):
    before = contents(checkpoint)
    done = command("lint", f"file://{checkpoint}", flag)
    assert done.returncode == 2
    assert "fixes are made in a directory" in done.stderr
    assert contents(checkpoint) == before


def test_a_revision_on_the_hub_is_a_source(command, recipe, publish, hub, tmp_path):
    checkpoint = tmp_path / "run/checkpoint-200"
    publish("rehearsal/model", contents(checkpoint))
    assert command("build", recipe()).returncode == 0
    variables = {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": hub.token,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    name = recipe("hf://rehearsal/model@main", "./hub/name", "there.yaml")
    done = command("build", name, **variables)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "hub/name") == contents(tmp_path / "out/name")


def test_a_build_that_is_killed_is_gone_on_with(command, recipe, environment, tmp_path):
    output = f"file://{tmp_path}/bucket/name"
    name = recipe(output=output, max_shard_size="40KB")
    program = (
        "import os, signal, sys\n"
        "from repokit.builder.execution import remote_journal\n"
        "from repokit.cli import run\n"
        "append, left = remote_journal.RemoteJournal.append, [3]\n"
        "def counted(self, record):\n"
        "    append(self, record)\n"
        "    left[0] -= 1\n"
        "    left[0] or os.kill(os.getpid(), signal.SIGKILL)\n"
        "remote_journal.RemoteJournal.append = counted\n"
        f"run(['build', {name!r}, '--jobs', '1'])\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = command("build", name)
    assert done.returncode == 0, done.stderr
    assert "reused   3 files of an interrupted build" in done.stderr
    there = contents(tmp_path / "bucket/name")
    shutil.rmtree(tmp_path / "bucket")
    assert command("build", name).returncode == 0
    assert contents(tmp_path / "bucket/name") == there


@pytest.mark.parametrize("words", [("--help",), ("build", "--help"), ("lint", "./run/checkpoint-200"), ("build",)])
def test_what_has_no_address_loads_no_fsspec(words, recipe, environment, tmp_path):
    recipe()
    program = (
        "import os, sys\n"
        "from repokit.cli import run\n"
        "stdout, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
        "run(sys.argv[1:])\n"
        "stdout.write(str('fsspec' in sys.modules))\n"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False"
