"""A page of the documentation, typed as it stands there.

A `console` block has commands after a prompt, each with what it prints below it:

    $ antiphon submit example.add 2 3
    ✓ succeeded  example.add eb9cffcb in 0.215 s
    5

`box$ ` is a prompt in the directory `box`, beside that of `$ `. `^C` stops the command that was
started last and goes on. What differs from run to run (ids, times, keys: `MAY_DIFFER`) may differ
from the page. An id of the page then stands for the one that came, in later commands too. `…` is
whatever comes there. A command without output on the page may print anything.

A `python` or `yaml` block whose first line is `# name.py` is that file, and `# name.py, continued`
is put at its end. A comment `<!-- not run: why -->` above a block leaves it out.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from tests.acceptance.shell import Answer, Running, Shell
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def page_named(name: str) -> Path:
    """The page of the documentation with this name, in whichever folder it is."""
    (found,) = (ROOT / "docs").rglob(f"{name}.md")
    return found


BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r"(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
PROMPT = re.compile(r"^(\w*)\$ (.*)$")
FILE = re.compile(r"# ([\w./]+\.(?:py|yaml))(, continued)?\n")
GOES_ON = re.compile(
    r"antiphon (dev|git serve|init|up|node|watch|worker|join .*(--work|--commands))\b"
)
KEY = re.compile(r"did:key:z\w{40,}")
TICKET = re.compile(r"antiphon-ticket-\S+")

MAY_DIFFER = [
    (r"antiphon-ticket-\S+", r"antiphon-ticket-\S+"),
    (r"did:key:\w+…?", r"did:key:\w+"),
    (r"blake3:[0-9a-f]+…?", r"blake3:[0-9a-f]{64}"),
    (r"\S*/\.antiphon\b", r"\S*/\.antiphon"),
    (r"\b[0-9a-f]{9,}…", r"[0-9a-f]{64}"),
    (r"(?:[A-Z2-7]{4}-){12}[A-Z2-7]{4}", r"(?:[A-Z2-7]{4}-){12}[A-Z2-7]{4}"),
    (r"\b[a-z2-7]{16}\b", r"[a-z2-7]{16}"),  # meshes
    (r"\b[0-9a-f]{16}\b", r"[0-9a-f]{16}"),  # fences
    (r"\b[0-9a-f]{8}\b", r"[0-9a-f]{8}"),  # jobs
    (r"\b(?=\w*\d)(?=\w*[a-zA-Z])[a-z2-7]{8}\b", r"[a-z2-7]{8}"),  # delegations
    (r"\b(?=\w*[a-z])(?=\w*[A-Z0-9])[1-9A-HJ-NP-Za-km-z]{8}\b", r"[1-9A-HJ-NP-Za-km-z]{8}"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+\d{4}", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"),
    (r"\b\d\d:\d\d:\d\d\.\d{3}\b", r"\d\d:\d\d:\d\d\.\d{3}"),
    (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d:\d\d\b", r"\w{3} \d\d:\d\d"),
    (r"\bin \d+ (?:days|hours)\b", r"in \d+ (?:days|hours)"),
    (r"\+\d+\.\d{3} s\b", r"\+\d+\.\d{3} s"),
    (r"\b\d+(?:\.\d+)? (?:s|ms|min|h|d)\b(?! and)", r"\d+(?:\.\d+)? (?:s|ms|min|h|d)"),
    (r"\b\d+\.\d+s\b", r"\d+\.\d+s"),
    (r"\b127\.0\.0\.1:\d+\b", r"127\.0\.0\.1:\d+"),
    (r"\b[\d,]+ (?:bytes|records)\b", r"[\d,]+ (?:bytes|records)"),
    (r"\bup to record \d+\b", r"up to record \d+"),
    (r"\bclient-\d+\b", r"client-\d+"),  # a number is free again when its process has ended
    (r"…", r".*"),
    (r" +", r" +"),  # columns are as wide as what is in them
]
ANY_OF_THEM = re.compile("|".join(f"({ours})" for ours, _ in MAY_DIFFER))
OF_A_JOB = "[0-9a-f]{8}"
COMES_OR_NOT = {"waiting for the coordinator's next seal, up to 40 s"}
"""Depends on how fast the reader was."""


class Block(NamedTuple):
    """A fenced block, and why it is not run."""

    language: str
    text: str
    reason: str | None


class Typed(NamedTuple):
    """A command, where it is typed, and what the page says that it prints."""

    place: str
    command: str
    shown: list[str]


def blocks(page: str) -> list[Block]:
    """All fenced blocks, in order."""
    return [
        Block(
            match["language"],
            re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            match["reason"],
        )
        for match in BLOCK.finditer(page)
    ]


def section(title: str, page: str) -> str:
    """What stands below a heading."""
    return re.search(rf"^## {re.escape(title)}$(.*?)(?:^## |\Z)", page, re.DOTALL | re.MULTILINE)[1]


def typed(block: Block) -> list[Typed]:
    """What is typed in a console block."""
    found: list[Typed] = []
    for line in block.text.splitlines():
        prompt = PROMPT.match(line)
        if prompt:
            found.append(Typed(prompt[1], prompt[2], []))
        elif line == "^C":
            found.append(Typed("", line, []))
        else:
            assert found, f"output before the first prompt: {line}"
            found[-1].shown.append(line)
    return found


def pattern(line: str) -> re.Pattern[str]:
    """What a line of the page stands for; a job's id is caught."""
    if line.strip().isdigit():  # a result, and not a time
        return re.compile(re.escape(line))
    pieces, end = [], 0
    for match in ANY_OF_THEM.finditer(line):
        assert match.lastindex is not None
        theirs = MAY_DIFFER[match.lastindex - 1][1]
        pieces += [re.escape(line[end : match.start()])]
        pieces += [f"({theirs})" if theirs == OF_A_JOB else theirs]
        end = match.end()
    return re.compile("".join([*pieces, re.escape(line[end:])]) + r"\s*")


class Reader:
    """Somebody who types a page, in a directory and in those beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shells: dict[str, Shell] = {}
        self.running: list[Running] = []
        self.ids: dict[str, str] = {}
        """What came, by what stands on the page."""
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self._ends.close()

    def shell(self, place: str) -> Shell:
        """The terminal of a prompt."""
        if place not in self.shells:
            where = self.directory.parent / place if place else self.directory
            beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            self.shells[place] = Shell(where, PATH=beside)
        return self.shells[place]

    def follow(self, page: str) -> None:
        """Type a page, from its beginning to its end."""
        for block in blocks(page):
            if block.reason is None:
                self.do(block)

    def do(self, block: Block) -> None:
        """Write the file of a block, or type its commands."""
        file = FILE.match(block.text)
        if block.language in {"python", "yaml"} and file:
            path = self.directory / file[1]
            with path.open("a" if file[2] else "w") as opened:
                opened.write(block.text)
        if block.language == "console":
            for one in typed(block):
                self.type(one)

    def type(self, one: Typed) -> None:
        """Type one command, and compare what it prints."""
        command = re.sub(
            r"\b[0-9a-f]{8}\b|\bTICKET\b|\bDID\b",
            lambda word: self.ids.get(word[0], word[0]),
            one.command,
        )
        if command == "^C":
            assert self.running.pop().stop() == 0
        elif GOES_ON.match(command):
            running = self._ends.enter_context(self.shell(one.place).start(*arguments(command)))
            self.running.append(running)
            if not one.shown:
                running.line()  # nobody types on before it says that it is there
            for line in filter(str.strip, one.shown):
                self.see(line, found_in(iter(running.line, None), line, running.seen))
        else:
            self.compare(one, self.answer(self.shell(one.place), command))

    def answer(self, shell: Shell, command: str) -> Answer:
        """What a command that ends has to say."""
        if command.startswith("antiphon export "):  # the page says that it may take a while
            return shell.export(*arguments(command)[1:])
        if re.match(r"antiphon [^|<>&;]*$", command):
            return shell.run(*arguments(command))
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=shell.directory,
            env=shell.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr, 0.0)

    def compare(self, one: Typed, answer: Answer) -> None:
        """Every line of the page was printed, and unless there is a `…`, no other line.

        A terminal shows standard error and standard output as they come; here each is by itself,
        so the order of the lines is not compared.
        """
        tells = re.search(r"antiphon (?:show|archive find)\b", one.command)  # of a job that failed
        says_so = bool(one.shown) and one.shown[0].startswith("✗ ") and not tells
        assert bool(answer.code) == says_so, (one.command, answer)
        if not one.shown:
            return
        printed = [line for line in (answer.err + answer.out).splitlines() if line.strip()]
        left = list(printed)
        for line in one.shown:
            if line.strip() in {"", "…"} or (line in COMES_OR_NOT and line not in printed):
                continue
            came = found_in(iter(left), line, printed)
            self.see(line, came)
            left.remove(came)
        is_whole = not any(line.strip() == "…" for line in one.shown)
        assert not (is_whole and left), f"{one.command} also prints {left}"

    def see(self, line: str, came: str) -> None:
        """Remember which id came in place of the page's, the ticket, and the key."""
        for ours, theirs in zip(
            re.findall(r"\b[0-9a-f]{8}\b", line),
            pattern(line).fullmatch(came).groups(),
            strict=True,
        ):
            assert self.ids.setdefault(ours, theirs) == theirs, f"{ours} was another one before"
        if ticket := TICKET.search(came):
            self.ids["TICKET"] = ticket[0]
        if key := KEY.search(came):
            self.ids["DID"] = key[0]


def arguments(command: str) -> list[str]:
    """The arguments of an antiphon command."""
    return shlex.split(command, comments=True)[1:]


def found_in(lines: Iterator[str], wanted: str, seen: list[str]) -> str:
    """The first line that is what stands on the page."""
    for line in lines:
        if pattern(wanted).fullmatch(line.rstrip("\n")):
            return line.rstrip("\n")
    raise AssertionError(f"not printed: {wanted!r}\nbut: " + "\n".join(seen))
