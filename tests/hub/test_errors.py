from __future__ import annotations

import json

import huggingface_hub
import pytest
from huggingface_hub import errors

from repokit.errors import (
    HubUnreachable,
    InternalError,
    NotAuthorized,
    ParentMoved,
    PublishError,
    RevisionNotFound,
    UsageError,
)
from repokit.hub.errors import Unanswered, asked_wait, safe, translated, translation
from repokit.rehearsal import Answer

TOKEN = "hf_" + "Ab1" * 12


def refused(hub, status, **headers):
    """The exception that huggingface_hub makes of an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    hub.intercept = lambda _: Answer(status, b'{"error": "said so"}', named)
    response = huggingface_hub.get_session().get(f"{hub.endpoint}/api/models/a/b")
    hub.intercept = None
    with pytest.raises(errors.HfHubHTTPError) as raised:
        huggingface_hub.hf_raise_for_status(response)
    return raised.value


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (401, {}, NotAuthorized),
        (401, {"X_Error_Code": "RepoNotFound"}, RevisionNotFound),
        (401, {"X_Error_Code": "GatedRepo"}, NotAuthorized),
        (403, {}, NotAuthorized),
        (403, {"X_Error_Message": "Access to this resource is disabled."}, NotAuthorized),
        (404, {"X_Error_Code": "RepoNotFound"}, RevisionNotFound),
        (404, {"X_Error_Code": "RevisionNotFound"}, RevisionNotFound),
        (404, {"X_Error_Code": "EntryNotFound"}, PublishError),
        (404, {}, PublishError),
        (400, {}, PublishError),
        (409, {}, PublishError),
        (412, {}, ParentMoved),
        (413, {}, PublishError),
        (422, {}, PublishError),
        (408, {}, Unanswered),
        (429, {}, Unanswered),
        (500, {}, Unanswered),
        (503, {}, Unanswered),
        (504, {}, Unanswered),
    ],
)
def test_an_answer_becomes_the_error_of_its_kind(hub, status, headers, expected):
    found = translation(refused(hub, status, **headers), "commit to", "org/name@main")
    assert type(found) is expected
    assert "org/name@main" in found.what


def test_what_the_hub_said_is_in_the_message(hub):
    assert "said so" in translation(refused(hub, 422), "commit to", "org/name").what


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.OfflineModeIsEnabled("offline"), HubUnreachable),
        (errors.LocalTokenNotFoundError("no token"), NotAuthorized),
        (errors.HFValidationError("bad name"), UsageError),
        (errors.HfHubHTTPError.__bases__[0]("broken"), Unanswered),
        (ConnectionError("Network error: 404"), Unanswered),
        (TimeoutError(), Unanswered),
        (json.JSONDecodeError("Expecting value", "<html>", 0), Unanswered),
        (KeyError("commitOid"), Unanswered),
        (AttributeError("'list' object has no attribute 'get'"), Unanswered),
        (RuntimeError("Error while uploading 'x' to the Hub."), PublishError),
        (ValueError("LFS batch API returned errors"), PublishError),
        (PermissionError(13, "Permission denied", "/data/x"), PublishError),
    ],
)
def test_every_family_becomes_an_error_of_repokit(error, expected):
    assert type(translation(error, "commit to", "org/name")) is expected


def test_a_certificate_that_is_not_trusted_is_no_absence():
    kind = type("ConnectError", (errors.HfHubHTTPError.__bases__[0],), {})
    found = translation(kind("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "read", "org/name")
    assert "certificate" in found.why


def test_an_upload_that_failed_is_told_by_its_cause():
    error = RuntimeError("Error while uploading 'x' to the Hub.")
    error.__cause__ = ConnectionError("reset")
    found = translation(error, "upload to", "org/name")
    assert isinstance(found, Unanswered)
    assert "'x'" in found.what
    assert "reset" in found.what


@pytest.mark.parametrize("error", [AssertionError(), NameError("x"), ZeroDivisionError()])
def test_a_bug_stays_a_bug(error):
    with pytest.raises(type(error)), translated("commit to", "org/name"):
        raise error


def test_an_error_of_repokit_passes():
    with pytest.raises(InternalError, match="mine"), translated("commit to", "org/name"):
        raise InternalError("mine")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {TOKEN} is wrong", "token *** is wrong"),
        (f"Illegal header value b'Bearer {TOKEN}\\n'", "Illegal header value b'***"),
        ("authorization: bearer secret", "authorization: ***"),
        ("hf_quant_config.json", "hf_quant_config.json"),
        ("two\nlines\x1b[31m", "two lines\\x1b[31m"),
    ],
)
def test_foreign_text_is_one_line_without_tokens(text, shown):
    assert safe(text) == shown


def test_a_token_does_not_hide_in_the_cause():
    with pytest.raises(PublishError) as raised, translated("commit to", "org/name"):
        raise ValueError(TOKEN)
    assert raised.value.__cause__ is None
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "30"}, 30),
        ({"Retry-After": " 0 "}, 0),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"RateLimit": '"api";r=12;t=55'}, None),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
def test_how_long_the_hub_asks_to_be_left_alone(headers, seconds):
    assert asked_wait(headers) == seconds
