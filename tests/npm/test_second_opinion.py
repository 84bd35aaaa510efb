"""What we push, read by the other client of the Hub; what it pushes, read by ours.

The npm package @huggingface/hub shares no line with huggingface_hub. It runs where node and the package are:
`npm ci --prefix tests/npm`, or anywhere else, named by REPOKIT_NPM, as .ci/run does.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from repokit.linter.examples import single
from repokit.publisher.push import push

pytestmark = pytest.mark.npm

HERE = Path(__file__).parent
REPO = "rehearsal/model"
both_ways = pytest.mark.parametrize("transfer", ["lfs", "xet"], indirect=True)
xet_or_not = pytest.mark.parametrize("xet", [False, True], ids=["lfs", "xet"])


class Refused(Exception):
    """What the npm client threw."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


@pytest.fixture(scope="session")
def node():
    """The program, where the package is installed."""
    program = shutil.which("node")
    folder = os.environ.get("REPOKIT_NPM")
    if folder is None and (program is None or not (HERE / "node_modules").is_dir()):
        pytest.skip("node, or @huggingface/hub, is not here: npm ci --prefix tests/npm")
    assert program, "REPOKIT_NPM is set, and there is no node"
    return program


@pytest.fixture
def npm(node, hub):
    """Runs one command of client.mjs against the Hub of the test."""

    def run(command, token=hub.token, **call):
        call = {"hubUrl": hub.endpoint, "accessToken": token, "repo": REPO, **call}
        done = subprocess.run(
            [node, HERE / "client.mjs", command, json.dumps(call)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout.splitlines()[-1])  # the client itself may print before
        if "error" in answer:
            raise Refused(answer["error"]["message"], answer["error"]["status"])
        return answer["result"]

    return run


@pytest.fixture
def api(hub, transfer):
    return HfApi(endpoint=hub.endpoint, token=hub.token)


@pytest.fixture
def directory(tmp_path):
    """A repository without a finding, a file in a folder, and weights that take more than one chunk of xet."""
    files = {**single(), "assets/note.txt": b"a note\n", "weights.bin": bytes(range(256)) * 2000 + bytes(300_000)}
    for path, content in files.items():
        place = tmp_path / "dist" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return tmp_path / "dist"


@pytest.fixture
def pushed(hub, directory, transfer):
    """What `push` did with the directory."""
    return push(directory, REPO, endpoint=hub.endpoint, token=hub.token, create=True, tag="v1.0")


def hashes(directory):
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".gitattributes" and ".cache" not in path.parts
    }


# What we pushed


@both_ways
@xet_or_not
def test_every_file_comes_back_as_it_was_pushed(npm, pushed, directory, xet):
    found = npm("hashes", revision="v1.0", xet=xet)
    del found[".gitattributes"]
    assert found == hashes(directory)


@both_ways
def test_the_listing_agrees_with_the_directory(npm, pushed, directory):
    listed = {entry["path"]: entry for entry in npm("listFiles", revision=pushed.commit) if entry["type"] == "file"}
    sizes = {path: entry["size"] for path, entry in listed.items() if path != ".gitattributes"}
    assert sizes == {path: (directory / path).stat().st_size for path in hashes(directory)}
    assert listed["weights.bin"]["lfs"]["oid"] == hashes(directory)["weights.bin"]


def test_branch_tag_and_commit_are_the_same_revision(npm, pushed):
    found = {revision: npm("modelInfo", revision=revision)["sha"] for revision in ("main", "v1.0", pushed.commit)}
    assert set(found.values()) == {pushed.commit}


def test_the_default_revision_is_main(npm, pushed):
    assert npm("modelInfo")["sha"] == pushed.commit  # it asks for the revision HEAD


def test_the_history_agrees(npm, pushed):
    listed = npm("listCommits", revision="main")
    assert (listed[0]["oid"], listed[0]["title"]) == (pushed.commit, "Publish 10 files: 10 added")
    assert npm("countCommits", revision="main") == 2


@both_ways
@xet_or_not
def test_a_range_of_a_large_file(npm, pushed, directory, xet):
    expected = hashlib.sha256((directory / "weights.bin").read_bytes()[131_000:600_000]).hexdigest()
    assert npm("slice", path="weights.bin", start=131_000, end=600_000, xet=xet) == expected


def test_the_table_of_the_weights(npm, pushed):
    assert sum(npm("tensors", revision="v1.0").values()) > 0


def test_raw_is_what_git_holds(npm, pushed, directory):
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashes(directory)['weights.bin']}\nsize 812000\n"
    )
    info = npm("downloadInfo", path="weights.bin", raw=True)
    assert info["size"] == len(pointer)
    assert npm("slice", path="weights.bin", raw=True, start=0, end=1000) == hashlib.sha256(pointer.encode()).hexdigest()


def test_a_file_that_is_not_there(npm, pushed):
    assert npm("fileExists", path="config.json")
    assert not npm("fileExists", path="absent.json")
    assert npm("downloadInfo", path="absent.json") is None


def test_paths_of_a_revision(npm, pushed):
    found = npm("pathsInfo", paths=["config.json", "assets", "absent"], revision="v1.0")
    assert {entry["path"]: entry["type"] for entry in found} == {"config.json": "file", "assets": "directory"}


def test_a_snapshot(npm, pushed, directory, tmp_path):
    folder = npm("snapshot", revision="v1.0", cacheDir=str(tmp_path / "cache"))
    assert hashes(Path(folder)) == hashes(directory)


def test_a_proposal_of_ours(npm, pushed, hub, directory):
    (directory / "weights.bin").write_bytes(bytes(700))
    push(directory, REPO, endpoint=hub.endpoint, token=hub.token, create_pr=True)
    found = npm("slice", path="weights.bin", revision="refs/pr/1", start=0, end=700)
    assert found == hashlib.sha256(bytes(700)).hexdigest()


def test_private_is_private(npm, hub, directory, transfer):
    push(directory, REPO, endpoint=hub.endpoint, token=hub.token, create=True, private=True)
    assert npm("repoExists")
    assert not npm("repoExists", token="hf_stranger")


# What it pushed


@xet_or_not
def test_what_it_uploads_is_what_we_download(npm, api, directory, tmp_path, xet):
    npm("createRepo")
    files = {path: str(directory / path) for path in hashes(directory)}
    done = npm("upload", files=files, title="From the other side", useXet=xet)
    api.snapshot_download(REPO, revision=done["commit"]["oid"], local_dir=tmp_path / "copy")
    assert hashes(tmp_path / "copy") == hashes(directory)
    assert (api.get_paths_info(REPO, "weights.bin")[0].xet_hash is not None) is xet


@xet_or_not
def test_what_it_uploads_need_not_be_pushed(npm, api, hub, directory, xet):
    npm("createRepo")
    files = {path: str(directory / path) for path in hashes(directory)}
    done = npm("upload", files=files, title="From the other side", useXet=xet)
    result = push(directory, REPO, endpoint=hub.endpoint, token=hub.token)
    assert (result.commit, result.changes.is_empty) == (done["commit"]["oid"], True)


@pytest.mark.parametrize("transfer", ["xet"], indirect=True)
def test_both_clients_give_a_file_the_same_xet_hash(npm, api, directory, transfer):
    npm("createRepo")
    place = directory / "weights.bin"
    npm("upload", files={"theirs.bin": str(place)}, title="theirs")
    api.upload_file(repo_id=REPO, path_or_fileobj=place, path_in_repo="ours.bin")
    ours, theirs = sorted(api.get_paths_info(REPO, ["ours.bin", "theirs.bin"]), key=lambda entry: entry.path)
    assert ours.xet_hash == theirs.xet_hash is not None


@pytest.mark.parametrize("transfer", ["xet"], indirect=True)
def test_what_it_uploads_by_xet_our_client_reads_by_xet(npm, api, hub, directory, tmp_path):
    npm("createRepo")
    npm("upload", files={"weights.bin": str(directory / "weights.bin")}, title="theirs")
    api.snapshot_download(REPO, local_dir=tmp_path / "copy")
    assert hashes(tmp_path / "copy")["weights.bin"] == hashes(directory)["weights.bin"]
    assert any("/reconstructions/" in path for _, path in hub.requests)


def test_a_commit_that_deletes(npm, pushed, api):
    npm("commit", deletions=["assets/note.txt"], title="less", parentCommit=pushed.commit)
    assert not api.file_exists(REPO, "assets/note.txt")


def test_a_stale_parent_is_refused_to_it_too(npm, pushed, api):
    api.upload_file(repo_id=REPO, path_or_fileobj=b"x", path_in_repo="meanwhile.txt")
    with pytest.raises(Refused, match="The branch was updated since") as refused:
        npm("commit", deletions=["assets/note.txt"], title="less", parentCommit=pushed.commit)
    assert refused.value.status == 412


def test_a_proposal_of_theirs_is_a_revision_of_ours(npm, pushed, api, directory):
    files = {"weights.bin": str(directory / "config.json")}
    done = npm("upload", token="hf_stranger", files=files, title="theirs", isPullRequest=True)
    assert done["pullRequestUrl"].endswith("/discussions/1")
    (entry,) = api.get_paths_info(REPO, "weights.bin", revision="refs/pr/1")
    assert entry.lfs.sha256 == hashes(directory)["config.json"]


def test_branches_of_theirs(npm, pushed, hub, directory, api):
    npm("createBranch", branch="next", revision=pushed.commit)
    (directory / "config.json").write_bytes(b"{}")
    result = push(directory, REPO, endpoint=hub.endpoint, token=hub.token, revision="next")
    assert npm("modelInfo", revision="next")["sha"] == result.commit
    npm("deleteBranch", branch="next")
    assert not api.revision_exists(REPO, "next")


def test_the_account_and_a_repository_that_goes(npm, api):
    assert npm("whoAmI") == "rehearsal"
    npm("createRepo")
    npm("deleteRepo")
    assert not api.repo_exists(REPO)
