"""`antiphon init` does not lose the recovery key, whatever becomes of its output or of itself."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats

KEY = re.compile(r"\b(?:[A-Z2-7]{4}-){12}[A-Z2-7]{4}\b")


def unshown(shell: Shell) -> list[Path]:
    return list((shell.home / "keys").glob("*unshown*"))


def test_a_recovery_key_that_could_not_be_printed_is_shown_by_the_next_command(tmp_path):
    shell = Shell(tmp_path)
    with Path("/dev/full").open("w") as full:
        failed = shell.typed_into(full.fileno(), "init", "--name", "farm", "--no-up")
        assert failed.wait() == 3
        assert failed.stderr is not None
        said = failed.stderr.read()
        failed.stderr.close()
    assert "the recovery key of the mesh 'farm' could not be shown" in said
    assert "run 'antiphon init' in this directory again" in said
    with shell.start("up") as hosting:
        hosting.line("up, 0 jobs")
        assert hosting.stop() == 0
        assert not KEY.search("".join(hosting.seen)), "what is not a terminal may be a log"
        assert "nobody has seen the recovery key" in hosting.err
    seen = shell.on_screen("up", seeing="up, 0 jobs", ends=True)
    assert len(KEY.findall(seen)) == 1
    assert not unshown(shell), "it is stored nowhere once it was shown"
    assert not KEY.search(shell.on_screen("up", seeing="up, 0 jobs", ends=True))
    again = shell.run("init", "--name", "farm", "--no-up")
    assert (again.code, KEY.search(again.out)) == (6, None)
    assert "already has the mesh 'farm'" in again.err


def test_an_init_that_was_killed_before_it_showed_the_recovery_key_shows_it_when_run_again(
    tmp_path,
):
    shell = Shell(tmp_path)
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 4096)
    os.set_blocking(writes, True)
    # Nobody reads the pipe and it is full: the first word about the new mesh cannot be written.
    killed = shell.typed_into(writes, "init", "--name", "farm", "--no-up")
    try:
        until((shell.home / "mesh.json").exists)
    finally:
        killed.kill()
        killed.wait()
        shell.end_server()
        os.close(reads)
        os.close(writes)
        if killed.stderr is not None:
            killed.stderr.close()
    with shell.init("--name", "farm") as founded:
        (key,) = KEY.findall(founded["recovery"])
        assert not unshown(shell)
        answer = shell.run("recover", "--json", typed=f"{key}\n")
        assert answer.code == 0, "it is the key that the mesh's first record names"
        assert json.loads(answer.out.splitlines()[-1])["event"] == "recovered"
