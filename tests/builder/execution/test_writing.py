"""Bytes that do not change, copied by the kernel: the same file whatever it refuses, and shared blocks where it can."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from repokit.builder.execution import writing
from repokit.builder.execution.reservation import Reservation
from repokit.builder.execution.writing import StoppedError, Terms, write_file
from repokit.errors import MissingInput, NoSpace, PlanError
from repokit.operations import CopyFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls of Linux")

RECIPE = {"weights": {"max_shard_size": "1KB"}}


@pytest.fixture
def calls(monkeypatch):
    """Counts copies inside the kernel, and lets them fail from the nth on, or be short."""
    made = []
    original = os.copy_file_range

    def arrange(code=None, after=0, longest=None):
        def copy(source, target, length, offset):
            made.append(length)
            if code is not None and len(made) > after:
                if code == 0:
                    return 0
                raise OSError(code, os.strerror(code))
            return original(source, target, min(length, longest or length), offset)

        monkeypatch.setattr(os, "copy_file_range", copy)
        return made

    return arrange


@pytest.fixture
def built(workshop):
    """Builds without hashes, and gives the contents beside those of a build with them."""
    workshop.checkpoint(shards=2, files={"tokenizer.json": "{}" * 100, "merges.txt": ""})
    workshop.build(output="./reference/out", **RECIPE)
    expected = workshop.contents(workshop.folder / "reference" / "out")
    del expected["repokit-manifest.json"]

    def build():
        workshop.build(manifest="off", **RECIPE)
        return workshop.contents(), expected

    return build


def test_without_hashes_the_kernel_copies(built, calls):
    made = calls()
    found, expected = built()
    assert found == expected
    assert made


def test_with_hashes_what_is_hashed_is_what_is_written(workshop, calls):
    workshop.checkpoint()
    made = calls()
    workshop.build()
    assert made == []


CODES = ["EXDEV", "EINVAL", "ENOSYS", "EPERM", "EOPNOTSUPP", "EBADF", "ETXTBSY", "EIO"]


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("code", [*CODES, "0"])
def test_what_the_kernel_refuses_is_copied_plainly(built, calls, code, after):
    made = calls(getattr(errno, code, 0), after)
    found, expected = built()
    assert found == expected
    assert len(made) > after


@pytest.mark.parametrize("longest", [1, 7, 100])
def test_short_copies_are_gone_on_with(built, calls, longest):
    calls(longest=longest)
    found, expected = built()
    assert found == expected


def test_a_full_disk_is_called_one(workshop, calls, monkeypatch):
    workshop.checkpoint()
    calls(errno.ENOSPC)
    original = os.write

    def write(descriptor, content):
        if len(content) < 1000:  # what is copied, not the header
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(descriptor, content)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(NoSpace):
        workshop.build(manifest="off")


def test_another_file_system(workshop, mounted):
    """The kernel itself refuses, or does not, as its version has it."""
    workshop.checkpoint(files={"tokenizer.json": "{}" * 100})
    (workshop.folder / "disk").mkdir()
    mounted(workshop.folder / "disk")
    workshop.build(output="./disk/out", manifest="off")
    assert workshop.tensors(workshop.folder / "disk" / "out") == workshop.model()


# ------------------------------------------------------------------------------------------------ one file


def copied(folder, content, *, hashed=True, size=None, stopped=lambda: False):
    (folder / "source").write_bytes(content)
    operation = CopyFile(path="copy", source=0, size=len(content) if size is None else size)
    terms = Terms(hashed=hashed, reservation=Reservation(0), stopped=stopped)
    return write_file([str(folder / "source")], operation, folder, terms)


def test_a_source_that_is_shorter_is_refused(tmp_path):
    with pytest.raises(PlanError, match="has become shorter since the plan was made"):
        copied(tmp_path, b"abc", hashed=False, size=10)


def test_a_source_that_is_longer_gives_what_was_planned(tmp_path):
    copied(tmp_path, b"abcdef", hashed=False, size=3)
    assert (tmp_path / "copy").read_bytes() == b"abc"


def test_a_source_that_is_not_there_is_named(tmp_path):
    operation = CopyFile(path="copy", source=0, size=3)
    with pytest.raises(MissingInput, match="nowhere: cannot be read"):
        write_file([str(tmp_path / "nowhere")], operation, tmp_path, Terms(hashed=False, reservation=Reservation(0)))


@pytest.mark.parametrize("hashed", [True, False])
def test_a_build_that_was_stopped_copies_no_more(tmp_path, hashed):
    with pytest.raises(StoppedError):
        copied(tmp_path, b"abc", hashed=hashed, stopped=lambda: True)


@pytest.fixture(params=["btrfs", "xfs"])
def sharing(request, tmp_path):
    """A file system in which files can share blocks."""
    make, mount, umount = shutil.which(f"mkfs.{request.param}"), shutil.which("mount"), shutil.which("umount")
    if not make or not mount or not umount or os.geteuid():
        pytest.skip(f"{request.param} cannot be made here")
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as stream:
        stream.truncate(400_000_000)
    subprocess.run([make, "-q", str(image)], capture_output=True, check=True)
    done = subprocess.run([mount, "-o", "loop", str(image), str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("only root may mount here, where there are loop devices")
    yield place
    subprocess.run([umount, str(place)], check=True)


@pytest.mark.parametrize("hashed", [True, False])
def test_a_whole_file_shares_its_blocks_where_it_can(sharing, hashed, monkeypatch):
    monkeypatch.setattr(writing._Output, "write", None)  # nothing is written
    content = os.urandom(3_000_001)
    record = copied(sharing, content, hashed=hashed)
    assert (sharing / "copy").read_bytes() == content
    assert record.sha256 == (hashlib.sha256(content).hexdigest() if hashed else "0" * 64)


def test_a_clone_takes_the_place_of_something_longer(sharing):
    (sharing / "copy").write_bytes(bytes(5_000_000))
    copied(sharing, b"abc" * 1_000_000)
    assert (sharing / "copy").read_bytes() == b"abc" * 1_000_000
