from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st

from repokit.rehearsal.server import BUCKET_ROUTES, ROUTES, Who, _address


def test_no_two_routes_answer_the_same():
    served = [(method, template) for method, template, _, _ in (*ROUTES, *BUCKET_ROUTES)]
    assert len(served) == len(set(served))


@pytest.mark.parametrize(("method", "template", "who", "handler"), ROUTES)
def test_a_route_that_checks_a_repository_names_one(method, template, who, handler):
    names = set(re.findall(r"\{(\w+)\}", template))
    assert ({"namespace", "name"} <= names) == (who in {Who.READER, Who.WRITER})


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        (
            "/api/{kind}/{namespace}/{name}/tree/{revision}{below}",
            "/api/models/a/b/tree/release%2Fv1/x/y",
            {"kind": "models", "namespace": "a", "name": "b", "revision": "release%2Fv1", "below": "/x/y"},
        ),
        (
            "/{prefix}{namespace}/{name}/resolve/{revision}{below}",
            "/a/b/resolve/main/resolve/x",
            {"prefix": "", "namespace": "a", "name": "b", "revision": "main", "below": "/resolve/x"},
        ),
        (
            "/{prefix}{namespace}/{name}.git/info/lfs/verify",
            "/datasets/a/b.git/info/lfs/verify",
            {"prefix": "datasets/", "namespace": "a", "name": "b"},
        ),
        ("/api/{kind}/{namespace}/{name}", "/api/repos/create", None),
        ("/api/{kind}/{namespace}/{name}", "/api/models/a", None),
    ],
)
def test_addresses_are_split_before_they_are_unquoted(template, path, expected):
    found = _address(template).fullmatch(path)
    assert (found and found.groupdict()) == expected


_PIECES = [
    "api",
    "models",
    "rehearsal",
    "model",
    "tree",
    "main",
    "..",
    "%2F",
    "%00",
    "resolve",
    "commit",
    "",
    "refs",
    "x",
]


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    pieces=st.lists(st.sampled_from(_PIECES), max_size=8),
    body=st.sampled_from([b"", b"{}", b"[]", b'{"files": [1]}', b'{"path": null}', b"\xff"]),
)
def test_no_address_and_no_body_is_too_much(shared_hub, method, pieces, body):
    hub, session = shared_hub
    headers = {"Authorization": f"Bearer {hub.token}"}
    answer = session.request(method, f"{hub.endpoint}/{'/'.join(pieces)}", content=body, headers=headers)
    assert answer.status_code < 500
    assert hub.failures == []


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    import huggingface_hub

    from repokit.rehearsal import Hub

    with Hub(tmp_path_factory.mktemp("hub")) as hub:
        huggingface_hub.HfApi(endpoint=hub.endpoint, token=hub.token).create_repo("rehearsal/model")
        yield hub, huggingface_hub.get_session()
