"""The README, and what it once had and other pages have now, typed as it stands there."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from antiphon.interfaces.cli.application import make_app
from antiphon.sandbox import probe
from tests.acceptance.shell import Shell
from tests.acceptance.typed_page import ROOT, arguments, blocks, page_named, section, typed
from tests.runtime.sandboxed import require_sandbox

README = (ROOT / "README.md").read_text()
COMMANDS, IDEAS, PROOFS = (
    page_named(name).read_text() for name in ("commands", "how-it-works", "proofs")
)

pytestmark = pytest.mark.nats


def typed_in(title: str, page: str = README) -> list[list[str]]:
    """The antiphon commands that stand in a section, as a shell splits them."""
    found = blocks(section(title, page))
    lines = [one.command for block in found if block.language == "console" for one in typed(block)]
    return [arguments(line) for line in lines if line.startswith("antiphon ")]


def test_the_first_minute_works_as_typed(tmp_path):
    first, *commands = typed_in("Ninety seconds")
    assert first == ["dev"]
    shell = Shell(tmp_path, is_warm=False)  # the console script itself, from start to end
    job = ""
    with shell.dev():
        for words in commands:
            # The README's job is another one than ours.
            given = [job if re.fullmatch("[0-9a-f]{8}", word) else word for word in words]
            answer = shell.export(*given[1:]) if given[0] == "export" else shell.run(*given)
            assert answer.code == 0, (given, answer)
            if given[0] == "submit":
                assert answer.out == "5\n"
                job = re.search("example.add ([0-9a-f]{8})", answer.err)[1]
            if given[0] == "show":
                assert "completed it, succeeded" in answer.out
            if given[0] == "verify":
                assert f"this bundle is valid: example.add {job}, succeeded" in answer.out


@pytest.fixture(scope="module")
def sealed_soon(tmp_path_factory):
    """A mesh with the jobs of both chapters that export one: they wait for the same seal."""
    shell = Shell(tmp_path_factory.mktemp("sealed"))
    with shell.dev():
        shell.added = shell.run("submit", "example.add", "2", "3", "--json").json["job"][:8]
        if probe().can_sandbox:  # else nobody would run it
            shell.ran = shell.run(*typed_in("Run a command", COMMANDS)[0])
            shell.command = shell.run("jobs", "--json").json["jobs"][0]["job"][:8]
        yield shell


def test_a_command_is_run_and_run_again_as_typed(sealed_soon):
    require_sandbox()
    shell = sealed_soon
    assert (shell.ran.code, shell.ran.out) == (0, ""), shell.ran
    for words in typed_in("Run a command", COMMANDS)[1:]:
        given = [shell.command if re.fullmatch("[0-9a-f]{8}", word) else word for word in words]
        if given[0] == "export":
            shell.export(*given[1:])
            continue
        answer = shell.run(*given)
        assert answer.code == 0, (given, answer)
        if given[0] == "get":
            assert answer.out == "hello\n"
    assert "same bytes as the worker's: stdout, stderr, out.txt" in answer.out


def test_a_bundle_is_checked_elsewhere_as_typed(sealed_soon, tmp_path):
    export, verify = typed_in("Check it elsewhere", PROOFS)
    here, there = sealed_soon, Shell(tmp_path)
    words = [here.added if re.fullmatch("[0-9a-f]{8}", word) else word for word in export]
    (here.directory / "bundle.json").unlink(missing_ok=True)
    assert words[0] == "export"
    told = here.export(*words[1:]).out
    # The last line is what somebody else types, the owner's whole key included.
    typed = shlex.split(told.splitlines()[-1])
    assert here.run(*typed[1:]).code == 0
    short = here.run(*typed[1:-1], typed[-1][-8:])
    assert short.code == 2
    assert "can be imitated" in short.err
    shutil.copy(here.directory / "bundle.json", there.directory / "bundle.json")
    checked = there.run(*verify)
    assert checked.code == 0, checked.err
    assert "every signature is valid" in checked.out
    assert "told the truth" in checked.out


def test_two_machines_work_as_typed(tmp_path):
    init, invite, join = typed_in("Two machines")
    here_alone = {"HOST": "127.0.0.1", "0.0.0.0:4222": "127.0.0.1:0"}
    init = [here_alone.get(word, word) for word in init]
    here, there = Shell(tmp_path / "farm"), Shell(tmp_path / "box")
    for shell in (here, there):
        shell.directory.mkdir()
    with here.start(*init) as host:
        host.line("Recovery key: write it down now")
        host.line("up, 0 jobs on it")
        ticket = here.run(*invite).out.strip()
        given = [ticket if word == "TICKET" else word for word in join]
        with there.start(*given) as worker:
            worker.line("joined mesh 'farm'")
            worker.line("may      claim example.*; until")
            worker.line("runs example.add")
            assert here.run("submit", "example.add", "2", "3").out == "5\n"
            assert worker.stop() == 0
        assert host.stop() == 0


def test_the_readmes_program_is_the_quickstart_and_prints_its_result(tmp_path):
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    quickstart = (ROOT / "examples" / "quickstart.py").read_text()
    assert quickstart.endswith(program)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == "5\n"


def test_nothing_that_is_built_is_listed_as_missing():
    """A page of its own, or a command, is the sign of it."""
    missing = section("What is not built yet", (ROOT / "SECURITY.md").read_text())
    listed = " ".join(re.findall(r"^- (.*(?:\n  .*)*)", missing, re.MULTILINE))
    words = set(re.findall(r"[a-z]+", listed.lower()))
    built = {page.stem for page in (ROOT / "docs").rglob("*.md")}
    built |= {command.name for command in make_app().registered_commands}
    assert words
    assert not words & built


def test_the_same_call_is_the_same_job_exactly_where_the_readme_says_so(tmp_path):
    shell = Shell(tmp_path)
    with shell.dev():
        for more, is_new in (((), True), (("--once",), False)):
            words = ("submit", "example.add", "2", "3", *more, "--json")
            assert shell.run(*words).json["is_new"]
            assert shell.run(*words).json["is_new"] == is_new


def test_the_readmes_chaos_is_refused_with_the_fence():
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "stale"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    shown = json.loads(re.search(r"^\{.*\}$", IDEAS, re.MULTILINE)[0])
    assert set(told) == set(shown)
    assert (told["stale_verdict"], told["accepted"], told["killed_accepted"]) == ("fence", 1, 1)
