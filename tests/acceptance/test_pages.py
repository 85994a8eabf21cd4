"""Pages of the documentation, typed as they stand."""

import asyncio

import pytest

from antiphon.errors import AntiphonError
from antiphon.sandbox import probe
from antiphon.sdk.archive.archives import open_archive
from tests.acceptance.shell import Shell, until
from tests.acceptance.typed_page import ROOT, Reader, page_named
from tests.patience import PATIENCE_S
from tests.runtime.sandboxed import require_sandbox

pytestmark = pytest.mark.nats


@pytest.fixture
def reader(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    with Reader(directory) as person:
        yield person


@pytest.mark.slow
def test_the_tutorial_works_as_typed(reader):
    reader.follow((ROOT / "docs/learn/tutorial.md").read_text())


@pytest.mark.req("P12")
def test_the_page_about_work_without_a_connection_is_true_as_typed(reader):
    reader.follow((ROOT / "docs/do/offline.md").read_text())


PAGE = """
```console
$ echo 'job 0123abcd ran in 3 s' && echo 5
job 11112222 ran in 0.2 s
5
$ echo 11112222
…
```
"""


def test_a_page_may_differ_in_ids_and_times_and_an_id_stands_for_the_one_that_came(reader):
    reader.follow(PAGE)
    assert reader.ids == {"11112222": "0123abcd"}


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("job 11112222 ran", "job 11112222 runs"),
        ("\n5\n", "\n6\n"),
        ("\n5\n", "\n"),
        ("\n5\n", "\n5\nand more\n"),
        ("$ echo 'job", "$ false; false 'job"),
        ("in 3 s'", "in 3 s' 11113333"),
    ],
)
def test_a_page_that_says_something_else_is_seen(ours, theirs, reader):
    with pytest.raises(AssertionError):
        reader.follow(PAGE.replace(ours, theirs, 1))


def test_what_is_marked_as_not_run_is_not_run(reader):
    reader.follow(PAGE.replace("```console", "<!-- not run: why -->\n```console"))
    assert reader.ids == {}


GIVEN = {
    "convert.py": "#!/usr/bin/env sh\nmkdir -p $2 && cp $1 $2\n",
    "data.csv": "a,b\n",
    "backup.sh": "#!/bin/sh\necho backed up\n",
    "deploy.sh": "#!/bin/sh\necho deployed\n",
    "tasks.py": """
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("report.render")
async def report(order: int) -> int:
    if order < 0:
        raise ValueError(order)
    return order


@mesh.task("render.frame")
async def frame(number: int) -> int:
    return number
""",
}
"""What the reader of these pages has already."""
GIVEN_JOB = "3f9a2c10"
"""One that failed."""
PAGES = [
    "attention",
    "locks",
    "memory",
    "models",
    "observability",
    "plans",
    "queries",
    "questions",
    "selection",
    "steps",
    "streams",
    "tasks",
    "who-may-do-what",
    "archive",  # by then the first job is sealed
]
SANDBOXED = ["commands", "manifest"]
"""Pages whose commands run as jobs."""


@pytest.fixture(scope="module")
def development(tmp_path_factory):
    """A mesh of `antiphon dev`, on which several pages are typed."""
    shell = Shell(tmp_path_factory.mktemp("development"))
    for name, text in GIVEN.items():
        (shell.directory / name).write_text(text)
        (shell.directory / name).chmod(0o755)
    commands = ("--commands", "build", "--commands", "command") if probe().can_sandbox else ()
    shell.env["ANTIPHON_ARCHIVE"] = str(shell.directory / ".antiphon" / "archive")
    with shell.dev("--tasks", "tasks.py", *commands):
        failed = shell.run("submit", "report.render", "--attempts", "1", "--json", "--", "-1").json
        shell.failed = failed["job"][:8]
        yield shell


async def is_archived(shell: Shell) -> bool:
    """Whether the job that failed is in the archive, with its end."""
    try:
        async with open_archive(shell.home / "archive") as archive:
            return (await archive.report(await archive.find(shell.failed))).job.is_terminal
    except AntiphonError:
        return False


@pytest.mark.parametrize("page", [*PAGES, *SANDBOXED])
def test_the_page_works_as_typed(page, development):
    if page in SANDBOXED:
        require_sandbox()
    with Reader(development.directory) as person:
        person.ids[GIVEN_JOB] = development.failed
        if page == "archive":
            until(lambda: asyncio.run(is_archived(development)), within_s=2 * PATIENCE_S)
        person.follow(page_named(page).read_text())
        for running in person.running:
            assert running.stop() == 0
