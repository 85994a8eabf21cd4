"""scripts/setup with programs that stand in for Python and uv: what is installed by which.

The real ones fetch packages; .ci/run uses them before every run of the tests.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.processes

PYTHON = f"""#!/usr/bin/env bash
if [ "$1" != -m ]; then exec {sys.executable} "$@"; fi
echo "$@" >>"$HOME/typed"
case "$2" in
  venv)
    mkdir -p "$3/bin"
    [ -z "${{WITHOUT_ENSUREPIP:-}}" ] || {{ echo "No module named ensurepip" >&2; exit 1; }}
    cp "$0" "$3/bin/python" ;;
  pip)
    [[ "$*" != *"config list"* ]] || echo "global.index-url='mirror'"
    [[ "$*" != *"--only-binary uv"* ]] || {{
      cp "${{@: -1}}" "$HOME/first"
      [ -z "${{WITHOUT_UV:-}}" ] || exit 1
      cp "$HOME/uv" .venv/bin/uv
    }} ;;
esac
"""
UV = """#!/usr/bin/env bash
[ "$1" != --version ] || exit 0
echo "uv from ${UV_DEFAULT_INDEX:-its own index}: $*" >>"$HOME/typed"
[ -z "${BROKEN_UV:-}" ]
"""


def set_up(tmp_path, **variables):
    """Run the script in a folder of its own: its exit code, what it printed, what was typed."""
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    for name in ("scripts/setup", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "cp", "dirname", "head", "mkdir", "mktemp", "rm", "sed"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for path, text in ((programs / "python3", PYTHON), (tmp_path / "uv", UV)):
        path.write_text(text)
        path.chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": str(programs), "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [programs / "bash", project / "scripts/setup"],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    typed = tmp_path / "typed"
    return ended, typed.read_text().splitlines() if typed.exists() else []


def test_pip_installs_the_locks_uv_and_nothing_else(tmp_path):
    ended, typed = set_up(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len([line for line in typed if line.startswith("-m pip") and " install " in line]) == 1
    lines = (tmp_path / "first").read_text().splitlines()
    assert lines[0].startswith("uv==")
    assert len(lines) > 5
    assert [line for line in lines[1:] if "--hash=sha256:" not in line] == []
    lock, project = (line for line in typed if line.startswith("uv from mirror: pip install"))
    assert "--require-hashes -r requirements.lock" in lock
    assert "--editable ." in project


@pytest.mark.parametrize("what", ["WITHOUT_UV", "BROKEN_UV"])
def test_pip_installs_everything_where_uv_does_not_work(tmp_path, what):
    ended, typed = set_up(tmp_path, **{what: "1"})
    assert ended.returncode == 0, ended.stderr
    by_pip = [line for line in typed if line.startswith("-m pip") and " install " in line]
    assert "--require-hashes -r requirements.lock" in by_pip[1]
    assert "--editable ." in by_pip[2]


def test_a_python_without_ensurepip_leaves_nothing_behind_and_says_what_to_install(tmp_path):
    ended, _ = set_up(tmp_path, WITHOUT_ENSUREPIP="1")
    assert ended.returncode == 1
    assert "python3-venv" in ended.stderr
    assert not (tmp_path / "project/.venv").exists()


def test_what_did_not_change_is_not_installed_again(tmp_path):
    set_up(tmp_path)
    before = (tmp_path / "typed").read_text()
    environment = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    again = ["bash", tmp_path / "project/scripts/setup"]
    subprocess.run(again, env=environment, capture_output=True, timeout=60, check=True)
    assert (tmp_path / "typed").read_text() == before
