"""A secret's value is nowhere but in its file: not in logs, proofs, command lines, or on any disk.

The same search finds a value that is no secret, in all the places where one would look: otherwise
finding nothing would show nothing.
"""

import base64
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell, is_alive, processes_called, wake
from tests.runtime.sandboxed import require_sandbox

pytestmark = pytest.mark.nats


def spellings(value: str) -> list[bytes]:
    """The value as it might have been written down."""
    raw = value.encode()
    return [raw, raw.hex().encode(), base64.b64encode(raw).rstrip(b"=")[:-1]]


def processes() -> Iterator[tuple[str, bytes]]:
    """What every process of this machine shows of itself."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        for what in ("cmdline", "environ"):
            try:
                yield f"{folder.name}/{what}", (folder / what).read_bytes()
            except OSError:
                continue


def files(directory: Path, *, without: Path) -> Iterator[tuple[str, bytes]]:
    for place, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if Path(place, name) != without]
        for name in names:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield str(path.relative_to(directory)), path.read_bytes()


def holding(value: str, places: Iterator[tuple[str, bytes]]) -> set[str]:
    wanted = spellings(value)
    return {name for name, data in places if any(one in data for one in wanted)}


@pytest.mark.slow
def test_a_canary_in_a_secret_is_found_nowhere(tmp_path):
    require_sandbox()
    canary, marker = f"canary-{secrets.token_hex(16)}", f"marker-{secrets.token_hex(16)}"
    shell = Shell(tmp_path, ANTIPHON_LOG_LEVEL="debug", ANTIPHON_LOG_FORMAT="json")
    folder = shell.home / "secrets"
    script = (
        "cp /run/secrets/token copy; cat /run/secrets/token > /tmp/t;"
        ' test "$(cat copy)" = "$(cat /run/secrets/token)" && sleep 603.3;'
        " wc -c < copy | tee size; echo $MARKER; exit $CODE"
    )
    told = ""
    with shell.start("dev", "--json") as dev:
        dev.line("ready")
        folder.mkdir(mode=0o700)
        (folder / "token").write_text(canary)
        (folder / "token").chmod(0o600)
        for code in ("0", "3"):
            words = ("--secret", "token", "--output", "size", "--env", f"MARKER={marker}")
            words = ("run", *words, "--env", f"CODE={code}", "--", "sh", "-c", script)
            with shell.start(*words) as running:
                seen_canary, seen_marker = set(), set()
                while is_alive(running.pid):
                    is_there = bool(processes_called("sleep", "603.3"))
                    now = list(processes())
                    seen_canary |= holding(canary, iter(now))
                    seen_marker |= holding(marker, iter(now))
                    if is_there:
                        wake("603.3")
                    time.sleep(0.1)
                assert running.wait() == int(code)
                told += running.line(marker) + running.err
            assert seen_marker, "the command was never looked at"
            assert seen_canary == set()
        for job in shell.run("jobs", "--json").json["jobs"]:
            for command in ("show", "proof", "artifacts"):
                answer = shell.run(command, job["job"], *(("--json",) * (command != "proof")))
                assert answer.code == 0, answer
                told += answer.out + answer.err
            assert shell.run("get", job["job"], "-o", f"outputs-{job['job'][:8]}").code == 0
        assert dev.stop() == 0
        told += "".join(dev.seen) + dev.err
    (tmp_path / "told").write_text(told)
    found = holding(marker, files(tmp_path, without=folder))
    assert any("replica.db" in name for name in found)
    assert any("/server/" in name for name in found)
    assert any("outputs-" in name for name in found)
    assert "told" in found
    assert holding(canary, files(tmp_path, without=folder)) == set()
    assert holding(canary, files(tmp_path, without=tmp_path / "none")) != set()
