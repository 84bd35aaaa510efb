"""Large files by xet: the real client, hf_xet, sends and fetches them over HTTP."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import CommitOperationAdd, HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from repokit.rehearsal import Hub

pytestmark = pytest.mark.parametrize("transfer", ["xet"], indirect=True)


@pytest.fixture(autouse=True)
def _by_xet(transfer):
    """Whatever is uploaded in a test here goes by xet."""


def noise(size, seed=0):
    """Bytes that no compression makes smaller."""
    return random.Random(seed).randbytes(size)


# One chunk; many; the same chunk again and again; halves that a xorb holds in another order.
CONTENTS = {
    "small": noise(900),
    "long": noise(1_000_000),
    "zeros": bytes(500_000),
    "mixed": noise(200_000) + bytes(300_000) + noise(200_000) + bytes(10),
    "text": b"weights as text\n" * 40_000,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_uploaded_is_downloaded(api, hub, repo, name):
    api.upload_file(repo_id=repo, path_or_fileobj=CONTENTS[name], path_in_repo="a.bin")
    path = hf_hub_download(repo, "a.bin", endpoint=hub.endpoint)
    assert _bytes(path) == CONTENTS[name]
    assert any("/reconstructions/" in asked for _, asked in hub.requests)


@pytest.mark.parametrize("name", CONTENTS)
def test_what_came_by_xet_can_be_had_without(api, hub, repo, name, monkeypatch):
    api.upload_file(repo_id=repo, path_or_fileobj=CONTENTS[name], path_in_repo="a.bin")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    assert _bytes(hf_hub_download(repo, "a.bin", endpoint=hub.endpoint)) == CONTENTS[name]


def test_files_that_share_chunks_are_sent_once(api, hub, repo):
    whole = noise(600_000)
    api.upload_file(repo_id=repo, path_or_fileobj=whole, path_in_repo="a.bin")
    hub.requests.clear()
    api.upload_file(repo_id=repo, path_or_fileobj=whole, path_in_repo="b.bin")
    assert [path for _, path in hub.requests if "/v1/xorbs/" in path] == []
    assert _bytes(hf_hub_download(repo, "b.bin", endpoint=hub.endpoint)) == whole


def test_the_tree_names_the_xet_hash_beside_the_sha256(api, repo, weights):
    (entry,) = api.get_paths_info(repo, "model.safetensors")
    assert entry.lfs.sha256 == hashlib.sha256(weights).hexdigest()
    assert len(entry.xet_hash) == 64


def test_what_came_by_lfs_has_no_xet_hash(api, repo, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    api.upload_file(repo_id=repo, path_or_fileobj=noise(700), path_in_repo="a.bin")
    assert api.get_paths_info(repo, "a.bin")[0].xet_hash is None


def test_a_snapshot_by_xet(hub, repo, weights, tmp_path):
    snapshot_download(repo, endpoint=hub.endpoint, local_dir=tmp_path / "copy")
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == weights


def test_a_private_file_by_xet(api, hub):
    api.create_repo("rehearsal/secret", private=True)
    api.upload_file(repo_id="rehearsal/secret", path_or_fileobj=noise(700), path_in_repo="a.bin")
    path = hf_hub_download("rehearsal/secret", "a.bin", endpoint=hub.endpoint, token=hub.token)
    assert _bytes(path) == noise(700)


def test_a_folder_is_uploaded_by_the_pipeline_of_the_client(api, repo, tmp_path):
    for number in range(30):
        (tmp_path / f"{number}.bin").write_bytes(noise(600, number))
    api.upload_folder(repo_id=repo, folder_path=tmp_path, allow_patterns="*.bin")
    assert len([path for path in api.list_repo_files(repo) if path.endswith(".bin")]) == 30


def test_a_folder_is_proposed_by_the_pipeline_of_the_client(api, repo, tmp_path):
    (tmp_path / "a.bin").write_bytes(noise(600))
    api.upload_folder(repo_id=repo, folder_path=tmp_path, allow_patterns="*.bin", create_pr=True)
    assert api.file_exists(repo, "a.bin", revision="refs/pr/1")
    assert not api.file_exists(repo, "a.bin")


def test_a_hub_that_starts_again_has_what_was_uploaded(tmp_path):
    for start in range(2):
        with Hub(tmp_path / "hub") as hub:
            api = HfApi(endpoint=hub.endpoint, token=hub.token)
            if start == 0:
                api.create_repo("rehearsal/model")
                api.upload_file(repo_id="rehearsal/model", path_or_fileobj=noise(5000), path_in_repo="a.bin")
                continue
            path = hf_hub_download("rehearsal/model", "a.bin", endpoint=hub.endpoint)
            assert _bytes(path) == noise(5000)
            assert any("/reconstructions/" in asked for _, asked in hub.requests)


def test_a_visitor_gets_no_token_to_write(hub, repo):
    answer = huggingface_hub.get_session().get(f"{hub.endpoint}/api/models/{repo}/xet-write-token/main")
    assert answer.status_code == 401


@pytest.mark.parametrize(("query", "status"), [("", 403), ("?create_pr=1", 200)])
def test_a_stranger_gets_a_token_for_a_proposal_only(hub, repo, query, status):
    headers = {"Authorization": "Bearer hf_stranger"}
    url = f"{hub.endpoint}/api/models/{repo}/xet-write-token/main{query}"
    assert huggingface_hub.get_session().get(url, headers=headers).status_code == status


def test_a_gated_file_is_not_read_around_the_gate(hub, api, repo):
    hub.storage.configure(next(iter(hub.storage.keys())), gated=True)
    answer = huggingface_hub.get_session().get(f"{hub.endpoint}/api/models/{repo}/xet-read-token/main")
    assert answer.status_code == 401


@pytest.mark.parametrize("token", ["", "Bearer hf_rehearsal", "Bearer nonsense"])
def test_the_storage_takes_its_own_tokens_only(hub, repo, token):
    url = f"{_storage(hub)}/v1/shards"
    answer = huggingface_hub.get_session().post(url, content=b"", headers={"Authorization": token} if token else {})
    assert answer.status_code == 401


def test_a_token_to_read_does_not_write(hub, api, repo):
    headers = _connection(hub, repo, "read")
    answer = huggingface_hub.get_session().post(f"{_storage(hub)}/v1/shards", content=b"", headers=headers)
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v1/shards", b""),
        ("/v1/shards", b"HFRepoMetaData\0"),
        (f"/v1/xorbs/default/{'a' * 64}", b""),
        (f"/v1/xorbs/default/{'a' * 64}", b"\0\xff\xff\xff\0\0\0\0"),
        ("/v1/xorbs/default/nonsense", b"\0\1\0\0\0\1\0\0x"),
    ],
)
def test_what_makes_no_sense_is_refused(hub, repo, path, content):
    headers = _connection(hub, repo, "write")
    answer = huggingface_hub.get_session().post(f"{_storage(hub)}{path}", content=content, headers=headers)
    assert answer.status_code in {400, 422}


def test_a_file_that_nobody_described_cannot_be_put_together(hub, repo):
    url = f"{_storage(hub)}/v2/reconstructions/{'0' * 64}"
    answer = huggingface_hub.get_session().get(url, headers=_connection(hub, repo, "read"))
    assert answer.status_code == 404


@pytest.mark.parametrize("asked", ["bytes=0-9", "bytes=150000-399999", "bytes=999999-"])
def test_a_range_is_put_together_from_the_chunks_that_hold_it(api, hub, repo, asked):
    api.upload_file(repo_id=repo, path_or_fileobj=CONTENTS["long"], path_in_repo="a.bin")
    name = api.get_paths_info(repo, "a.bin")[0].xet_hash
    start, _, last = asked.removeprefix("bytes=").partition("-")
    group = _reader(hub, repo)
    from hf_xet import XetFileInfo

    end = int(last or 999_999) + 1
    found = b"".join(group.download_stream(XetFileInfo(name, 1_000_000), start=int(start), end=end))
    assert found == CONTENTS["long"][int(start) : end]


def test_a_sha256_that_its_chunks_do_not_have_is_refused(api, hub, repo):
    addition = CommitOperationAdd("a.bin", noise(900))
    addition.upload_info.sha256 = bytes(32)  # taken on trust by the client, and told to the Hub
    with pytest.raises(HfHubHTTPError) as refused:
        api.create_commit(repo, [addition], commit_message="m")
    assert refused.value.response.status_code == 422
    assert not api.file_exists(repo, "a.bin")


def _storage(hub):
    return f"{hub.bucket}/xet/{hub.storage.xet.name}"


def _connection(hub, repo, scope):
    url = f"{hub.endpoint}/api/models/{repo}/xet-{scope}-token/main"
    answer = huggingface_hub.get_session().get(url, headers={"Authorization": f"Bearer {hub.token}"}).json()
    assert answer["casUrl"] == _storage(hub)
    return {"Authorization": f"Bearer {answer['accessToken']}"}


def _reader(hub, repo):
    import hf_xet

    token = _connection(hub, repo, "read")["Authorization"].removeprefix("Bearer ")
    return hf_xet.XetSession().new_download_stream_group(
        endpoint=_storage(hub), token=token, token_expiry_unix_secs=4_000_000_000
    )


def _bytes(path):
    return Path(path).read_bytes()
