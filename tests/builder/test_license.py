from __future__ import annotations

import pytest

from repokit.errors import MissingInput, Stopped

TEXT = b"Some license\n"


def license_of(workshop):
    """Name and text of the license files of the build."""
    found = {path.name: path.read_bytes() for path in workshop.output.iterdir()}
    return {name: text for name, text in found.items() if name.startswith(("LICEN", "COPYING"))}


def test_a_missing_license_stops_the_build_and_names_the_key(workshop):
    workshop.checkpoint()
    with pytest.raises(Stopped, match="the license is missing") as caught:
        workshop.plan(license={})
    assert (caught.value.path, caught.value.place) == ("repokit.yaml", "license.id")


def test_a_missing_license_stops_with_exit_code_1(workshop):
    workshop.checkpoint()
    with pytest.raises(Stopped) as caught:
        workshop.plan(license={"id": ""})
    assert caught.value.exit_code == 1


def test_a_missing_license_points_to_the_base(workshop):
    workshop.checkpoint()
    with pytest.raises(Stopped) as caught:
        workshop.plan(license={}, base={"id": "org/base"})
    assert "https://huggingface.co/org/base" in caught.value.hint


@pytest.mark.parametrize("name", ["LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE", "LICENCE.txt", "COPYING"])
def test_the_text_of_the_source_is_taken_under_its_name(workshop, name):
    workshop.checkpoint(files={name: TEXT})
    workshop.build(license={"id": "mit"})
    assert license_of(workshop) == {name: TEXT}


def test_the_text_of_the_base_is_taken_where_the_source_has_none(workshop):
    workshop.checkpoint()
    workshop.checkpoint(name="base", files={"LICENSE": TEXT})
    workshop.build(license={"id": "mit"}, base={"path": "./base"})
    assert license_of(workshop) == {"LICENSE": TEXT}


def test_the_text_of_the_source_wins_over_that_of_the_base(workshop):
    workshop.checkpoint(files={"LICENSE": TEXT})
    workshop.checkpoint(name="base", files={"LICENSE": b"another"})
    workshop.build(license={"id": "mit"}, base={"path": "./base"})
    assert license_of(workshop) == {"LICENSE": TEXT}


def test_a_text_that_the_recipe_names_wins(workshop):
    workshop.checkpoint(files={"LICENSE": b"another"})
    (workshop.folder / "mine.txt").write_bytes(TEXT)
    workshop.build(license={"id": "mit", "file": "mine.txt"})
    assert license_of(workshop) == {"LICENSE": TEXT}


def test_a_text_that_is_named_and_not_there_is_refused(workshop):
    workshop.checkpoint()
    with pytest.raises(MissingInput, match=r"mine\.txt: is named by license\.file and not there"):
        workshop.plan(license={"id": "mit", "file": "mine.txt"})


def test_null_publishes_none(workshop):
    workshop.checkpoint(files={"LICENSE": TEXT})
    workshop.build(license={"id": "mit", "file": None})
    assert license_of(workshop) == {}


def test_the_apache_text_comes_from_a_library(workshop):
    workshop.checkpoint()
    workshop.build(license={"id": "apache-2.0"})
    assert b"Version 2.0, January 2004" in license_of(workshop)["LICENSE"]


def test_a_text_that_is_not_at_hand_is_a_warning_with_a_command(workshop):
    workshop.checkpoint()
    plan = workshop.plan(license={"id": "mit"}, base={"id": "org/base"})
    assert plan.warnings == (
        "the text of mit is not at hand: hf download org/base LICENSE --local-dir ., then license.file: LICENSE",
    )


def test_a_link_to_a_text_outside_is_not_followed(workshop):
    secret = workshop.folder / "secret"
    secret.write_bytes(b"secret")
    (workshop.checkpoint() / "LICENSE").symlink_to(secret)
    workshop.build(license={"id": "mit"})
    assert license_of(workshop) == {}


@pytest.mark.parametrize("name", ["NOTICE", "NOTICE.txt", "USE_POLICY.md"])
def test_what_the_license_asks_to_be_passed_on_is_carried(workshop, name):
    workshop.checkpoint(files={name: TEXT})
    workshop.build()
    assert workshop.read(name) == TEXT


def test_a_card_that_states_another_license_is_said(workshop):
    workshop.checkpoint(files={"README.md": "---\nlicense: mit\n---\n# Mine\n\nWritten by me.\n"})
    assert workshop.plan().warnings == ("the card of the source states the license mit, the recipe apache-2.0",)


def test_a_card_that_states_the_same_license_needs_no_word(workshop):
    workshop.checkpoint(files={"README.md": "---\nlicense: apache-2.0\n---\n# Mine\n\nWritten by me.\n"})
    assert workshop.plan().warnings == ()
