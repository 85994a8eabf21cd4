"""A room in which one thing is missing is found out, and nothing ever runs in it."""

import os

import pytest

from antiphon.errors import Misconfigured
from antiphon.processes import procfs
from antiphon.sandbox.isolation import bubblewrap, isolation_check, rlimits
from antiphon.sandbox.isolation.cgroups import Group
from antiphon.sandbox.open_files import OpenFiles
from tests.sandbox.shell import shell

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes a root worker")


def without(*words):
    """Leave options out; a pair of words goes as one."""

    def change(options):
        kept = list(options)
        for word in words:
            gone = word.split(" ")
            for at in range(len(kept)):
                if kept[at : at + len(gone)] == gone:
                    del kept[at : at + len(gone)]
                    break
            else:
                raise AssertionError(f"{word} was not there")
        return kept

    return change


def before_the_end(*words):
    """Add options in front of the last remounting."""
    return lambda options: [
        *(options[: options.index("--remount-ro")]),
        *words,
        *(options[options.index("--remount-ro") :]),
    ]


def without_seccomp(options):
    at = options.index("--seccomp")
    return options[:at] + options[at + 2 :]


SABOTAGE = [
    ("seccomp", without_seccomp),
    ("network:none", without("--unshare-net")),
    ("namespaces", without("--unshare-ipc")),
    ("namespaces", without("--unshare-uts", "--hostname job")),
    ("namespaces", without("--unshare-pid")),
    ("files:read-only", without("--remount-ro /")),
    ("files:read-only", without("--remount-ro /proc")),
    ("files:read-only", before_the_end("--bind", "{tmp}", "/mnt")),
    ("files:read-only", before_the_end("--dev-bind", "/dev", "/mnt")),
    ("work", before_the_end("--perms", "0777", "--size", "9999999999", "--tmpfs", "/job")),
    ("scratch", before_the_end("--perms", "0777", "--tmpfs", "/tmp")),
    ("environment:cleared", before_the_end("--setenv", "LEFT", "over")),
]


async def is_found_out(able, tmp_path, missing):
    mark = tmp_path / "mark"
    with pytest.raises(Misconfigured, match=f"without .*{missing}"):
        await shell(f"touch {mark} /mnt/mark /job/mark; echo ran", able, tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("missing, change", SABOTAGE)
async def test_a_weaker_room_is_never_let_go(able, tmp_path, monkeypatch, missing, change):
    build = bubblewrap.room

    def weaker(*arguments):
        return [word.replace("{tmp}", str(tmp_path)) for word in change(build(*arguments))]

    monkeypatch.setattr(bubblewrap, "room", weaker)
    await is_found_out(able, tmp_path, missing)


@pytest.mark.parametrize(
    "missing, file, truth, lie",
    [
        ("files:read-only", "mountinfo", "nosuid,", ""),
        ("files:read-only", "mountinfo", "nodev,", ""),
        ("files:read-only", "mountinfo", " ro,", " rw,"),
        ("no-new-privileges", "status", "NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ("seccomp", "status", "Seccomp:\t2", "Seccomp:\t0"),
        ("capabilities:none", "status", "CapEff:\t0000", "CapEff:\t0001"),
        ("rlimits", "limits", " 0                    bytes", " unlimited            bytes"),
    ],
)
async def test_every_word_is_read_from_the_kernel(
    able, tmp_path, monkeypatch, missing, file, truth, lie
):
    read = procfs.read

    def lying(path):
        text = read(path)
        return text.replace(truth, lie) if path.endswith(f"/{file}") else text

    monkeypatch.setattr(procfs, "read", lying)
    await is_found_out(able, tmp_path, missing)


@pytest.mark.parametrize(
    "gate, worker, holds",
    [
        (("2", "1"), ("0", "0"), True),
        (("2", "2"), ("2", "1"), True),  # a worker in a container has a filter already
        (("2", "1"), ("2", "1"), False),
        (("0", "0"), ("0", "0"), False),
        (("2", None), ("0", None), True),  # a kernel that does not count them
        (("2", None), ("2", None), False),
    ],
)
def test_the_filter_in_force_is_ours(gate, worker, holds):
    def said(mode, count):
        return {"Seccomp": mode} | ({} if count is None else {"Seccomp_filters": count})

    assert isolation_check._is_filtered(said(*gate), said(*worker)) is holds


@needs_root
@pytest.mark.parametrize(
    "missing, change",
    [
        ("uid", lambda words: []),
        ("groups:none", lambda words: [w.replace("--clear-groups", "--groups=0") for w in words]),
        ("capabilities:none", lambda words: [w for w in words if "bounding-set" not in w]),
    ],
)
async def test_a_job_that_is_still_somebody_is_never_let_go(
    able, tmp_path, monkeypatch, missing, change
):
    become = bubblewrap._as_job
    monkeypatch.setattr(bubblewrap, "_as_job", lambda tools, uid: change(become(tools, uid)))
    await is_found_out(able, tmp_path, missing)


async def test_limits_that_were_not_set_are_noticed(able, tmp_path, monkeypatch):
    monkeypatch.setattr(rlimits, "script", lambda limits, **_: "true")
    await is_found_out(able, tmp_path, "rlimits")


async def test_a_group_that_does_not_hold_the_process_is_noticed(able, tmp_path, monkeypatch):
    if able.cgroup is None:
        pytest.skip("no cgroup is ours to write to here")
    monkeypatch.setattr(Group, "entering", lambda self, sh: [])
    await is_found_out(able, tmp_path, "cgroup")


async def test_a_file_that_was_left_open_is_noticed(able, tmp_path, monkeypatch):
    """An open directory of the machine's, inherited, would be a way out of every room."""
    numbers = OpenFiles.numbers.fget
    left_open = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        monkeypatch.setattr(
            OpenFiles, "numbers", property(lambda self: (*numbers(self), left_open))
        )
        await is_found_out(able, tmp_path, "files:none-inherited")
    finally:
        os.close(left_open)


async def test_a_room_that_does_not_come_up_says_why(able, tmp_path, monkeypatch):
    build = bubblewrap.room
    monkeypatch.setattr(bubblewrap, "room", lambda *a: ["--ro-bind", "/absent", "/x", *build(*a)])
    with pytest.raises(Misconfigured, match="/absent"):
        await shell("true", able, tmp_path)


async def test_nothing_is_claimed_that_was_not_found(able, tmp_path):
    held = (await shell("true", able, tmp_path)).ended.isolation.held
    assert len(held) == len(set(held))
    assert {"seccomp", "no-new-privileges", "capabilities:none", "network:none"} <= set(held)
    assert f"bubblewrap:{able.tools.version}" in held
    uid = next(word for word in held if word.startswith("uid:"))
    assert uid != "uid:0"
    assert ("cgroup:v1" in held or "cgroup:v2" in held) == (able.cgroup is not None)
