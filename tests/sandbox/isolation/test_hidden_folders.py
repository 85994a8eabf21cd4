"""Folders of the worker's own that no command sees, wherever they lie."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import Misconfigured
from antiphon.sandbox import probe
from antiphon.sandbox.isolation import bubblewrap
from tests.sandbox.shell import shell

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting, and /usr, are root's")
SECRET = "canary-of-the-worker"


@pytest.fixture
def app(tmp_path):
    """A directory that commands see, with the worker's state in it, readable by everybody."""
    folder = tmp_path / "app"
    state = folder / "state"
    (state / "keys").mkdir(parents=True)
    (state / "keys" / "worker-1.key").write_text(SECRET)
    (folder / "tool").write_text("a tool")
    return folder


async def seen(able, app, script, **fields):
    work = app.parent / "work"
    work.mkdir(exist_ok=True)
    return await shell(script, able, work, visible=(app,), **fields)


async def test_without_hiding_it_would_be_in_sight(able, app):
    said = await seen(able, app, f"cat {app}/state/keys/*.key")
    assert SECRET in said.out


async def test_a_hidden_folder_is_out_of_sight_and_what_lies_beside_it_is_not(able, app):
    script = (
        f"cat {app}/tool; cat {app}/state/keys/worker-1.key; ls {app}/state;"
        f" chmod 777 {app}/state; touch {app}/state/mark; cat {app}/state/keys/worker-1.key"
    )
    said = await seen(able, app, script, hidden=(app / "state",))
    assert said.out == "a tool"
    assert "files:hidden" in said.ended.isolation.held
    assert not (app / "state" / "mark").exists()


async def test_a_folder_is_hidden_by_whatever_path_it_is_given(able, app, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(app / "state")
    (app / "way").symlink_to(app / "state")
    script = f"cat {app}/state/keys/worker-1.key {app}/way/keys/worker-1.key"
    for given in (link, app / ".." / "app" / "state"):
        said = await seen(able, app, script, hidden=(given,))
        assert SECRET not in said.out


async def test_an_input_from_a_hidden_folder_is_shown_all_the_same(able, app):
    """Runs have their directories in the worker's state, and inputs lie in those."""
    given = app / "state" / "0"
    given.write_text("an input")
    given.chmod(0o444)
    script = f"cat data; cat {app}/state/0 {app}/state/keys/worker-1.key"
    said = await seen(able, app, script, hidden=(app / "state",), inputs=(("data", given),))
    assert said.out == "an input"


async def test_a_folder_in_a_hidden_one_may_be_named_as_well(able, app):
    hidden = (app / "state" / "keys", app / "state", app / "state" / "keys")
    said = await seen(able, app, f"cat {app}/state/keys/*.key", hidden=hidden)
    assert SECRET not in said.out


async def test_what_is_out_of_sight_anyway_needs_no_mask(able, app, tmp_path):
    far = tmp_path / "far"
    far.mkdir()
    said = await seen(able, app, f"ls {far} || echo absent", hidden=(far, tmp_path / "nowhere"))
    assert said.out == "absent\n"


@pytest.mark.parametrize(
    "hidden, why",
    [
        ("app", "{app} is inside it"),
        (".", "{app} is inside it"),
        ("app/later", "does not exist yet"),
    ],
)
async def test_what_cannot_be_hidden_is_refused(able, app, hidden, why):
    folder = app.parent / hidden
    with pytest.raises(Misconfigured, match=why.format(app=app)) as caught:
        await seen(able, app, "true", hidden=(folder,))
    assert str(folder.resolve()) in caught.value.message
    assert caught.value.hint


def test_a_machine_that_cannot_hide_its_state_shuts_no_command_in(able):
    found = probe(hidden=(Path("/usr"),))
    assert not found.can_sandbox
    assert found.problems == ("/usr cannot be hidden from commands: /usr is inside it",)
    assert "ANTIPHON_HOME" in found.remedies[0]


async def test_a_mask_that_is_missing_is_noticed(able, app, monkeypatch):
    monkeypatch.setattr(bubblewrap, "_masks", lambda *_: iter(()))
    with pytest.raises(Misconfigured, match="without files:hidden"):
        await seen(able, app, "true", hidden=(app / "state",))


@needs_root
async def test_a_folder_that_is_mounted_in_several_places_is_hidden_in_all(able, app, tmp_path):
    """As containers do: one volume, seen at two paths."""
    volume = tmp_path / "volume"
    (volume / "state").mkdir(parents=True)
    (volume / "state" / "key").write_text(SECRET)
    whole, part = app / "data", app / "part"
    for place, source in ((whole, volume), (part, volume / "state")):
        place.mkdir()
        subprocess.run(["mount", "--bind", source, place], check=True)
    try:
        script = f"cat {whole}/state/key {part}/key"
        assert (await seen(able, app, script)).out.count(SECRET) == 2
        said = await seen(able, app, script, hidden=(volume / "state",))
        assert SECRET not in said.out
    finally:
        for place in (whole, part):
            subprocess.run(["umount", place], check=True)


WORKER = """
import asyncio, os, sys, tempfile
from pathlib import Path
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.sandbox import Command, probe, run
os.setgroups([]), os.setgid(65534), os.setuid(65534)  # no module is in reach from here on
app = Path(sys.argv[1])
home = StateDirectory(app / ".antiphon")
home.key("worker-1", SystemEntropy())
async def main():
    hidden = (home.path,) if sys.argv[2] == "hidden" else ()
    able = probe(hidden=hidden)
    assert able.can_sandbox, able.problems
    command = Command(argv=("sh", "-c", f"cat {home.path}/keys/*.key"), hidden=hidden)
    work = Path(tempfile.mkdtemp(dir=app))
    ended = await run(command, work=work, on_output=lambda _, data: print(data), abilities=able)
    print("level", ended.isolation.level)
asyncio.run(main())
"""


@needs_root
def test_an_ordinary_user_below_usr_keeps_its_keys_to_itself(able):
    """A container's usual /usr/src/app: the command has the worker's own uid."""
    app = Path("/usr/src", f"antiphon-test-{os.getpid()}")
    app.mkdir(parents=True)
    try:
        os.chown(app, 65534, 65534)
        told = {
            mode: subprocess.run(
                [sys.executable, "-c", WORKER, str(app), mode],
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            for mode in ("shown", "hidden")
        }
        key = (app / ".antiphon" / "keys" / "worker-1.key").read_text().strip()
    finally:
        shutil.rmtree(app)
    assert key in told["shown"].stdout, told["shown"].stderr
    assert key not in told["hidden"].stdout
    assert "level sandbox" in told["hidden"].stdout, told["hidden"].stderr
