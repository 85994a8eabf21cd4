"""The language of the stories in this folder: what a `.txt` file may say.

    # A story begins with its title and, if need be, some prose. The rest of a line from a `#` on
    # is a remark.
    today: Saturday 12:00
    cast:  owner, anna, contractor
    rules: lease_ms 20000                      only if they differ from the defaults

    owner       grants G to contractor: /job on render.* until Sunday 12:00   -> ok
    owner       calls render.frame as J                                       -> ok
    contractor  claims J                                                      -> ok
    state J is claimed by contractor
    -- Saturday 12:00:02 --                    the clocks move on
    elsewhere: owner calls render.frame as K   -> ok

A *step* says who does what, and after `->` the verdict that every reader must come to, in the
words of `antiphon.core.record.verdict`. `PHRASES` lists all there is to do. A part in brackets may
be left out. Behind any phrase of an op may stand, in this order, the `TWISTS`: which grants the op
names as its chain (`under nothing`: none; unsaid: what the author's own node would pick), which
time its author writes on it, whom the author pretends to be, whose lane it is put on although it
belongs elsewhere, and a name by which to speak of it later.

A *check* says what every reader must see at that place: `CHECKS` lists all there is to see.

`owner` founds the mesh, and `recovery` holds its recovery key. A step that begins with `elsewhere:`
happens on another mesh of the same people.

Times are days of one week, Monday first, the one in which `today` lies; `last` and `next` step out
of it. `today` is when everything is *committed*, so that a story can be told on a real server,
whose clock nobody sets: an op is `dated` otherwise by its author, and a grant may lie in the past
or begin in the future. Where the clocks must move, a server is really waited for: by seconds only.

A line that fits nothing here is a `ScriptError`: there is no such thing as a step without effect.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.core.record.verdict import Verdict

PHRASES = {
    # --- delegations
    "grants": "{new_grant} to {person}: {command} [on {kinds}] [from {start}] [until {end}]"
    " [in the name of {issuer}]",
    "writes": "{new_grant} to {person}: {command} [on {kinds}] [from {start}] [until {end}]"
    " [in the name of {issuer}]",  # signs it and puts it on no log
    "alters": "{grant} into {new_grant}: until {end}",  # and keeps the old signature
    "brings": "{grant}",
    "revokes": "{grant}",
    # --- the owner's ops, and those about the owner
    "routes": "{kind} to {target}",
    "names": "{person} coordinator",
    "sets": "{rule} to {number}",
    "hands": "the mesh to {person}, with {spare} as recovery key",
    "shows": "{record} and {other_record} against {person}",
    "readmits": "{person}",
    # --- jobs
    "calls": "{kind} as {new_job} [doing the same as {job}] [limited by {label}]"
    " [waiting until {end}]",
    "offers": "{job}",
    "claims": "{job}",
    "renews": "{job}",
    "starts": "{job}",
    "completes": "{job}",
    "yields": "{job}",
    "cancels": "{job}",
    # --- a record that is on a log already, byte for byte
    "replays": "{record}",
}
TWISTS = (
    " [under {chain}] [dated {time}] [dated as {dated_as}] [posing as {pose}]"
    " [on the lane of {lane}] [called {new_record}]"
)
CHECKS = {
    "job": "{job} is {job_state} [by {person}]",
    "coordinator": "coordinator is {person}",
    "coordinators": "coordinators were {people}",
    "owner": "owner is {person}",
    "route": "{kind} is routed to {target}",
    "quarantined": "quarantined is {target}",
}
UNSENT = "unsent"
"""What stands after the arrow of a step that puts nothing on the log."""
SILENT = frozenset({"writes", "alters"})
NOBODY, NOTHING = "nobody", "nothing"

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAME = r"[A-Za-z][\w-]*"
_TIME = rf"(?:last |next )?(?:{'|'.join(_DAYS)}) \d\d:\d\d(?::\d\d)?"
_PATTERNS = {
    "command": r"/[a-z/]*",
    "kinds": r"[a-z0-9_.*-]+",
    "kind": r"[a-z][a-z0-9_.-]*",
    "start": _TIME,
    "end": _TIME,
    "time": _TIME,
    "chain": rf"{_NAME}(?:, {_NAME})*",
    "people": rf"{_NAME}(?:, {_NAME})*",
    "rule": r"[a-z_]+",
    "number": r"\d+",
    "job_state": "unknown|waiting|pending|claimed|running|succeeded|failed|aborted",
}
_PEOPLE = ("person", "people", "issuer", "spare", "target", "pose")
_KINDS_OF_NAME = {
    "grant": ("grant", "chain"),
    "job": ("job", "lane"),
    "record": ("record", "other_record", "dated_as"),
}


class ScriptError(Exception):
    """A line of a story that means nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """Where something was said, and how."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """Somebody does something, and it is judged."""

    line: Line
    who: str
    verb: str
    words: dict[str, str]
    expected: str
    is_elsewhere: bool


@dataclass(frozen=True, slots=True)
class Check:
    """What every reader must see at this place."""

    line: Line
    about: str
    words: dict[str, str]


@dataclass(frozen=True, slots=True)
class Move:
    """The clocks go on to a time, in milliseconds after `today`."""

    line: Line
    to_ms: int


@dataclass(slots=True)
class Story:
    """A script, read."""

    name: str
    title: str = ""
    today: str = ""
    cast: list[str] = field(default_factory=list)
    rules: dict[str, int] = field(default_factory=dict)
    scenes: list[Step | Check | Move] = field(default_factory=list)

    def after_ms(self, time: str) -> int:
        """A time of the story, as milliseconds after `today`."""
        return _of_week_ms(time) - _of_week_ms(self.today)


def _of_week_ms(time: str) -> int:
    *shift, day, clock = time.split(" ")
    weeks = {"last": -1, "next": 1}[shift[0]] if shift else 0
    hours, minutes, seconds = (*map(int, clock.split(":")), 0)[:3]
    days = 7 * weeks + _DAYS.index(day)
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _compiled(phrase: str) -> re.Pattern[str]:
    """A phrase as a pattern: brackets are optional, braces are named parts."""
    pattern = re.escape(phrase).replace(r"\ ", " ")
    pattern = re.sub(r" \\\[", "(?: ", pattern).replace(r"\]", ")?")
    return re.compile(
        re.sub(
            r"\\\{(\w+)\\\}",
            lambda part: f"(?P<{part[1]}>{_PATTERNS.get(part[1], _NAME)})",
            pattern,
        )
    )


def _twists(verb: str) -> str:
    """What may stand behind a phrase: nothing that would be without effect."""
    return {"replays": " [on the lane of {lane}]"}.get(verb, "" if verb in SILENT else TWISTS)


_STEPS = {verb: _compiled(PHRASES[verb] + _twists(verb)) for verb in PHRASES}
_CHECKS = {about: _compiled(phrase) for about, phrase in CHECKS.items()}


def read(path: Path) -> Story:
    """The story in a file."""
    return parse(path.read_text(encoding="utf-8"), name=path.stem)


def parse(text: str, *, name: str) -> Story:
    """A story, or `ScriptError` at the first line that fits nothing."""
    return _Reading(name).all_of(text)


class _Reading:
    """One pass over a script; remembers which names have been given so far."""

    def __init__(self, name: str) -> None:
        self.story = Story(name)
        self.named: dict[str, set[str]] = {"grant": set(), "job": set(), "record": set()}
        self.line = Line(0, "")

    def all_of(self, text: str) -> Story:
        for number, raw in enumerate(text.splitlines(), 1):
            said, hash_mark, remark = raw.partition("#")
            if hash_mark and not self.story.title:
                self.story.title = remark.strip()
            said = " ".join(said.split())
            self.line = Line(number, said)
            if said:
                self._one(said)
        for part in ("title", "today", "cast", "scenes"):
            if not getattr(self.story, part):
                raise self._error(f"the story has no {part}")
        return self.story

    def _error(self, what: str) -> ScriptError:
        return ScriptError(f"{self.story.name}.txt:{self.line.number}: {what}: {self.line.text!r}")

    def _one(self, said: str) -> None:
        head, _, rest = said.partition(" ")
        story = self.story
        if head in {"today:", "cast:", "rules:"}:
            if story.scenes:
                raise self._error("this belongs at the beginning")
            self._heading(head, rest)
        elif not (story.today and "owner" in story.cast):
            raise self._error("first say 'today:', and a 'cast:' with the owner")
        elif head == "--":
            story.scenes.append(self._move(said))
        elif head == "state":
            story.scenes.append(self._check(rest))
        else:
            story.scenes.append(self._step(said))

    def _heading(self, head: str, rest: str) -> None:
        if head == "today:":
            if re.fullmatch(_TIME, rest) is None:
                raise self._error("this is no time")
            self.story.today = rest
        elif head == "cast:":
            self.story.cast = rest.split(", ")
        else:
            for rule in rest.split(", "):
                found = re.fullmatch(r"([a-z_]+) (\d+)", rule)
                if found is None:
                    raise self._error("a rule is a word and a number")
                self.story.rules[found[1]] = int(found[2])

    def _move(self, said: str) -> Move:
        found = re.fullmatch(rf"-- ({_TIME}) --", said)
        if found is None:
            raise self._error("this is no time")
        return Move(self.line, self.story.after_ms(found[1]))

    def _check(self, rest: str) -> Check:
        for about, pattern in _CHECKS.items():
            found = pattern.fullmatch(rest)
            if found is not None:
                return Check(self.line, about, self._words(found))
        raise self._error("there is no such check")

    def _step(self, said: str) -> Step:
        deed, arrow, expected = said.partition(" -> ")
        if not arrow:
            raise self._error("it says no verdict ('-> ok')")
        is_elsewhere = deed.startswith("elsewhere: ")
        who, _, rest = deed.removeprefix("elsewhere: ").partition(" ")
        verb, _, objects = rest.partition(" ")
        if who not in self.story.cast:
            raise self._error(f"{who!r} is not in the cast")
        if verb not in PHRASES:
            raise self._error(f"nobody can do {verb!r}")
        if expected not in ({UNSENT} if verb in SILENT else {reason.value for reason in Verdict}):
            raise self._error(f"{expected!r} is no verdict on it")
        found = _STEPS[verb].fullmatch(objects)
        if found is None:
            raise self._error(f"to say is: {verb} {PHRASES[verb]}{_twists(verb)}")
        words = self._words(found)
        for sort, known in self.named.items():
            if (new := words.get(f"new_{sort}")) is not None:
                if new in known:
                    raise self._error(f"there is a {sort} {new!r} already")
                known.add(new)
        return Step(self.line, who, verb, words, expected, is_elsewhere)

    def _words(self, found: re.Match[str]) -> dict[str, str]:
        """The parts that were said; whom and what they name must be known."""
        words = {part: said for part, said in found.groupdict().items() if said is not None}
        for part in words.keys() & set(_PEOPLE):
            for who in words[part].split(", "):
                if who not in self.story.cast and (part, who) != ("target", NOBODY):
                    raise self._error(f"{who!r} is not in the cast")
        for sort, parts in _KINDS_OF_NAME.items():
            for part in words.keys() & set(parts):
                for one in words[part].split(", "):
                    if one not in self.named[sort] and (part, one) != ("chain", NOTHING):
                        raise self._error(f"there is no {sort} {one!r} yet")
        return words
