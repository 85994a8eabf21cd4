import os
import socket
import threading

import pytest

from antiphon.sandbox.output_files import MAX_DEPTH, Collection, Stopped, matches
from tests.sandbox.shell import small


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


def collect(job, tmp_path, *patterns, **fields):
    fields = {"limits": small(), "is_apart": False, **fields}
    limits = fields.pop("limits")
    collection = Collection(patterns or ("**",), tmp_path / "outputs", limits, **fields)
    folder = os.open(job, os.O_RDONLY | os.O_DIRECTORY)
    try:
        collection.collect(folder)
    finally:
        os.close(folder)
    return collection


def names(collection):
    return [output.name for output in collection.taken]


def refused(collection):
    return {left.name: left.why for left in collection.left_out}


@pytest.mark.parametrize(
    "pattern, name, means",
    [
        ("out.txt", "out.txt", True),
        ("*.txt", "out.txt", True),
        ("*.txt", "a/out.txt", False),
        ("**/*.txt", "out.txt", True),
        ("**/*.txt", "a/b/out.txt", True),
        ("a/**", "a/b/c", True),
        ("a/**", "b/c", False),
        ("**", "a/b", True),
        ("a/*/c", "a/b/c", True),
        ("a/*/c", "a/b/b/c", False),
        ("**/a/**/b", "x/a/y/z/b", True),
        ("**/a/**/b", "x/y/z/b", False),
        ("[ab].?", "a.b", True),
        ("a", "a/b", False),
        ("a/b", "a", False),
        (".*", ".hidden", True),
    ],
)
def test_globs(pattern, name, means):
    assert matches(pattern, tuple(name.split("/"))) is means


def test_no_glob_is_slow():
    assert not matches("/".join(["**", "a"] * 40), ("a",) * 31 + ("b",))
    assert not matches("*a" * 200, ("a" * 199,))


def test_files_are_copied_under_their_names(job, tmp_path):
    (job / "deep" / "er").mkdir(parents=True)
    (job / "deep" / "er" / "b.txt").write_bytes(b"two")
    (job / "a.txt").write_bytes(b"one")
    (job / "a.log").write_bytes(b"not wanted")
    collection = collect(job, tmp_path, "**/*.txt")
    assert names(collection) == ["a.txt", "deep/er/b.txt"]
    assert [output.path.read_bytes() for output in collection.taken] == [b"one", b"two"]
    assert collection.left_out == []


def test_links_lead_nowhere(job, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("canary")
    (job / "file").symlink_to(outside / "key")
    (job / "folder").symlink_to(outside)
    (job / "hard").hardlink_to(outside / "key")
    collection = collect(job, tmp_path)
    assert names(collection) == []
    assert refused(collection) == {
        "file": "a symbolic link",
        "folder": "a symbolic link",
        "hard": "it is a hard link to a file that may be another user's",
    }


def test_a_second_name_is_harmless_on_a_file_system_of_its_own(job, tmp_path):
    (job / "a").write_text("one")
    (job / "b").hardlink_to(job / "a")
    assert names(collect(job, tmp_path, is_apart=True)) == ["a", "b"]


def test_special_files_are_not_opened_for_good(job, tmp_path):
    os.mkfifo(job / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(job / "socket"))
        collection = collect(job, tmp_path)
    assert names(collection) == []
    assert set(refused(collection)) == {"pipe", "socket"}


def test_sizes_count_with_their_holes(job, tmp_path):
    with (job / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (job / "small").write_bytes(b"x")
    collection = collect(job, tmp_path)
    assert names(collection) == ["small"]
    assert "larger than" in refused(collection)["sparse"]


def test_all_together_are_bounded_too(job, tmp_path):
    for name in "abc":
        with (job / name).open("wb") as file:
            file.truncate(2000)
    collection = collect(job, tmp_path, limits=small(work_bytes=4096))
    assert names(collection) == ["a", "b"]
    assert "with the others" in refused(collection)["c"]


def test_names_that_nobody_can_show_are_left_out(job, tmp_path):
    for name in (b"\xff\xfe", b"new\nline", "\u202e.txt".encode(), b"fine"):
        (job / os.fsdecode(name)).write_bytes(b"x")
    collection = collect(job, tmp_path)
    assert names(collection) == ["fine"]
    assert all(left.name.isascii() and left.name.isprintable() for left in collection.left_out)
    assert len(collection.left_out) == 3


def test_depth_is_bounded(job, tmp_path):
    folder = job.joinpath(*"d" * (MAX_DEPTH + 5))
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"x")
    collection = collect(job, tmp_path)
    assert names(collection) == []
    assert "deeper than" in collection.left_out[0].why


def test_inputs_are_not_outputs(job, tmp_path):
    (job / "in.txt").write_bytes(b"")
    (job / "out.txt").write_bytes(b"x")
    assert names(collect(job, tmp_path, inputs=["in.txt"])) == ["out.txt"]


def test_copying_can_be_stopped(job, tmp_path):
    (job / "a").write_bytes(b"x")
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        collect(job, tmp_path, stop=stop)
