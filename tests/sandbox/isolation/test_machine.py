"""What the machine offers: cgroups, uids for jobs, and what `probe` makes of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from antiphon.errors import Misconfigured, Unavailable
from antiphon.sandbox import probe, support
from antiphon.sandbox.isolation import cgroups, job_uids
from antiphon.sandbox.isolation.bubblewrap_program import find_bwrap
from antiphon.sandbox.isolation.cgroups import Group, Parent

# --- cgroups ---------------------------------------------------------------------------------


def tree(tmp_path: Path, mounts: str, own: str) -> tuple[Path, Path]:
    (tmp_path / "mounts").write_text(mounts.format(root=tmp_path))
    (tmp_path / "own").write_text(own)
    return tmp_path / "mounts", tmp_path / "own"


def test_version_one_has_a_tree_for_each_controller(tmp_path):
    for name in ("memory/mine", "pids"):
        (tmp_path / name).mkdir(parents=True)
    files = tree(
        tmp_path,
        "cgroup {root}/memory cgroup rw,memory 0 0\ncgroup {root}/pids cgroup rw,pids 0 0\n",
        "4:memory:/mine\n8:pids:/\n0::/\n",
    )
    found, why = cgroups.find(*files)
    assert why == ""
    assert found == Parent(version="v1", memory=tmp_path / "memory/mine", pids=tmp_path / "pids")


def test_version_two_must_hand_its_controllers_down(tmp_path):
    home = tmp_path / "unified" / "mine"
    home.mkdir(parents=True)
    files = tree(tmp_path, "cgroup2 {root}/unified cgroup2 rw 0 0\n", "0::/mine\n")
    assert cgroups.find(*files)[0] is None, "it has no switch at all"
    (home / "cgroup.subtree_control").write_text("cpu memory pids io")
    assert cgroups.find(*files)[0] == Parent(version="v2", memory=home, pids=home, cpu=home)
    assert [child.name for child in home.iterdir()] == ["cgroup.subtree_control"]


def test_where_there_is_nothing_it_says_so(tmp_path):
    files = tree(tmp_path, "proc /proc proc rw 0 0\n", "0::/\n")
    found, why = cgroups.find(*files)
    assert found is None
    assert "cgroup" in why


@pytest.mark.parametrize("version, memory", [("v1", "memory.limit_in_bytes"), ("v2", "memory.max")])
def test_limits_hold_only_if_they_read_back(tmp_path, version, memory):
    (tmp_path / "g").mkdir()
    for name in (memory, "pids.max"):
        (tmp_path / "g" / name).touch()
    group = Group(Parent(version=version, memory=tmp_path, pids=tmp_path), "g")
    bounds = {"memory_bytes": 8192, "processes": 5}
    group.limit(**bounds)
    (tmp_path / "g" / "cgroup.procs").write_text(f"1234\n{os.getpid()}\n")
    assert group.holds(os.getpid(), **bounds)
    assert not group.holds(1, **bounds)
    assert not group.holds(os.getpid(), memory_bytes=4096, processes=5)
    (tmp_path / "g" / "pids.max").write_text("max\n")
    assert not group.holds(os.getpid(), **bounds)
    (tmp_path / "g" / memory).unlink()
    assert not group.holds(os.getpid(), **bounds)


@pytest.mark.parametrize("version, file", [("v1", "tasks"), ("v2", "cgroup.procs")])
def test_a_process_enters_by_itself_and_becomes_what_follows(tmp_path, version, file):
    folders = {"v1": ("m", "p"), "v2": ("m", "m")}[version]
    for name in set(folders):
        (tmp_path / name / "g").mkdir(parents=True)
    memory, pids = (tmp_path / name for name in folders)
    group = Group(Parent(version=version, memory=memory, pids=pids), "g")
    line = [*group.entering("/bin/sh"), "printf", "%s|", "a b", "$1"]
    assert subprocess.run(line, capture_output=True, check=True).stdout == b"a b|$1|"
    assert [(folder / file).read_text() for folder in group.folders] == ["0\n"] * len(set(folders))


def test_a_group_that_cannot_be_entered_runs_nothing(tmp_path):
    group = Group(Parent(version="v2", memory=tmp_path, pids=tmp_path), "absent")
    line = [*group.entering("/bin/sh"), "echo", "ran"]
    done = subprocess.run(line, check=False, capture_output=True)
    assert done.returncode != 0
    assert b"ran" not in done.stdout


@pytest.mark.req("B21")
@pytest.mark.parametrize(
    "version, files",
    [
        ("v1", {"memory.usage_in_bytes": "4096\n", "cpuacct.usage": "1500000\n"}),
        (
            "v2",
            {
                "memory.current": "4096\n",
                "cpu.stat": "usage_usec 1500\nuser_usec 1000\n",
                "io.stat": "8:0 rbytes=100 wbytes=20 rios=1 wios=1\n8:16 rbytes=3 wbytes=0\n",
            },
        ),
    ],
)
def test_what_was_used_is_read_from_the_group(tmp_path, version, files):
    folder = tmp_path / "g"
    folder.mkdir()
    group = Group(Parent(version=version, memory=tmp_path, pids=tmp_path, cpu=tmp_path), "g")
    assert (group.cpu_ms(), group.memory_bytes(), group.disk_io_bytes()) == (None, None, None)
    for name, text in files.items():
        (folder / name).write_text(text)
    assert group.cpu_ms() == 2
    assert group.memory_bytes() == 4096
    assert group.disk_io_bytes() == (123 if version == "v2" else None)


@pytest.mark.req("B21")
def test_a_group_that_counts_no_processor_time_says_so(tmp_path):
    group = Group(Parent(version="v1", memory=tmp_path, pids=tmp_path), "g")
    assert group.cpu_ms() is None


def test_deaths_for_want_of_memory_are_counted(tmp_path):
    (tmp_path / "g").mkdir()
    parent = Parent(version="v2", memory=tmp_path, pids=tmp_path)
    assert Group(parent, "g").out_of_memory() == 0
    (tmp_path / "g" / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert Group(parent, "g").out_of_memory() == 2


def test_groups_of_dead_workers_are_swept(tmp_path):
    parent = Parent(version="v2", memory=tmp_path, pids=tmp_path)
    left, other = tmp_path / f"{cgroups.PREFIX}1-1", tmp_path / "somebody"
    for folder in (left, other):
        folder.mkdir()
        os.utime(folder, (0, 0))
    cgroups.sweep(parent)
    assert not left.exists()
    assert other.exists()


def test_a_group_that_another_worker_has_just_made_is_left_alone(tmp_path):
    """It is empty until its job enters it, and a sweep takes empty ones."""
    parent = Parent(version="v2", memory=tmp_path, pids=tmp_path)
    with cgroups.group(parent) as made:
        cgroups.sweep(parent)
        assert all(folder.is_dir() for folder in made.folders)


# --- uids ------------------------------------------------------------------------------------


def test_uids_are_lent_one_at_a_time(tmp_path):
    with job_uids.borrowed(tmp_path / "locks") as one:
        with job_uids.borrowed(tmp_path / "locks") as other:
            assert one != other
        assert min(one, other) >= job_uids.FIRST
        assert max(one, other) < job_uids.FIRST + job_uids.COUNT


def test_when_all_are_lent_the_next_one_waits_outside(tmp_path, monkeypatch):
    monkeypatch.setattr(job_uids, "COUNT", 2)
    with job_uids.borrowed(tmp_path / "locks"), job_uids.borrowed(tmp_path / "locks"):  # noqa: SIM117
        with pytest.raises(Unavailable), job_uids.borrowed(tmp_path / "locks"):
            pass
    with job_uids.borrowed(tmp_path / "locks"):
        pass


def test_a_directory_that_others_can_write_to_is_not_trusted(tmp_path):
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o777)
    with pytest.raises(Misconfigured), job_uids.borrowed(locks):
        pass


# --- probe -----------------------------------------------------------------------------------


def programs(folder: Path, **scripts: str) -> str:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}"


def test_a_machine_without_bubblewrap_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(support, "_PATH", programs(tmp_path))
    monkeypatch.setenv("PATH", "")
    found = probe()
    assert not found.can_sandbox
    assert "not installed" in found.problems[0]
    with pytest.raises(Misconfigured) as refused:
        found.required()
    assert "apt-get install bubblewrap" in refused.value.hint


def test_an_old_bubblewrap_is_not_enough(tmp_path, monkeypatch):
    old = "case $1 in --version) echo bubblewrap 0.1.8;; *) echo '--args FD';; esac"
    monkeypatch.setattr(support, "_PATH", programs(tmp_path, bwrap=old))
    found = probe()
    assert "too old" in found.problems[0]
    assert "--size" in found.problems[0]


def test_a_trial_that_fails_is_quoted(tmp_path, monkeypatch):
    manual = " x ".join([*support._NEEDED, ""])
    denied = (
        "case $1 in --version) echo bubblewrap 0.9.0;; "
        f"--help) echo '{manual}';; *) echo 'bwrap: No permissions' >&2; exit 1;; esac"
    )
    path = programs(tmp_path, bwrap=denied) + ":/usr/bin:/bin"
    monkeypatch.setattr(support, "_PATH", path)
    found = probe()
    assert found.problems == ("a test sandbox failed: bwrap: No permissions",)
    assert found.remedies
    assert not found.can_sandbox


@pytest.fixture
def elsewhere(tmp_path, monkeypatch, able):
    """A folder with bubblewrap in it, on PATH, on a machine that has it nowhere else."""
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o755)
    shutil.copy(able.tools.bwrap, folder / "bwrap")
    monkeypatch.setenv("PATH", f"{folder}:/nonexistent")
    monkeypatch.setattr(support, "find_bwrap", lambda _: find_bwrap("/nonexistent"))
    return folder


def test_bubblewrap_may_lie_elsewhere_on_the_path(elsewhere):
    found = probe()
    assert found.can_sandbox, found.problems
    assert found.tools.bwrap == str(elsewhere / "bwrap")


def test_a_link_to_it_is_as_good(elsewhere, tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir(mode=0o755)
    (links / "bwrap").symlink_to(elsewhere / "bwrap")
    monkeypatch.setenv("PATH", str(links))
    assert probe().can_sandbox
    elsewhere.chmod(0o777)
    assert f"other users could change {elsewhere}" in probe().problems[0]


@pytest.mark.parametrize("what", ["file", "folder", "above", "owner"])
def test_one_that_others_could_change_is_not_used(elsewhere, what):
    path = {"folder": elsewhere, "above": elsewhere.parent}.get(what, elsewhere / "bwrap")
    if what == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 12345, 12345)
    else:
        path.chmod(0o757 if path.is_dir() else 0o775)
    found = probe()
    assert not found.can_sandbox
    assert f"is not used, because other users could change {path}" in found.problems[0]
    assert found.remedies == (support.INSTALL,)


def test_a_sticky_directory_above_it_is_no_danger(elsewhere):
    elsewhere.parent.chmod(0o1777)
    assert probe().can_sandbox


def test_no_relative_folder_is_looked_into(elsewhere, monkeypatch):
    monkeypatch.chdir(elsewhere)
    for path in ("", ".", "../bin", ":"):
        monkeypatch.setenv("PATH", path)
        assert "not installed" in probe().problems[0]


def test_this_machine(able):
    assert able.can_sandbox
    assert able.problems == ()
    assert (able.cgroup is None) == any("cgroup" in note for note in able.notes)
