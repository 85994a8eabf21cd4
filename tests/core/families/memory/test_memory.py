"""Documents of shared memory: every op in every state, and what no history can do (spec §10)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.families.memory import MEMORY
from antiphon.core.families.memory.ops import (
    MAX_SIBLINGS,
    Inline,
    MemoryBody,
    MemoryPut,
    Sibling,
    Stored,
)
from antiphon.core.families.memory.state import document_key
from antiphon.core.opened_record import open_record
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import digest, name_of_key
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import Court
from tests.core.authors import ALICE, BOB, OWNER
from tests.core.ledger import Ledger

pytestmark = pytest.mark.req("S13")
OK = Verdict.OK
SPACE, KEY = "notes.team", "plan of the day"
HASH = digest(b"large")


def value(text: object) -> Inline:
    return Inline(text=f'"{text}"')


class Notebook:
    """One document on a ledger; each put is by an author that has read the lane."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()

    @property
    def document(self):
        lane = self.ledger.reader.all_lanes.get(document_key(SPACE, KEY))
        return lane and lane.state

    @property
    def revision(self) -> int:
        return self.document.revision if self.document else 0

    @property
    def siblings(self) -> list[str]:
        return [one.op for one in self.document.siblings] if self.document else []

    def body(self, what, **fields) -> MemoryBody:
        """As an author writes it that has just read the document, `fields` changed."""
        ids = fields.get("resolves", ())
        made_from = fields.get("base", self.revision)
        strategy = fields.get("strategy", "remote")
        is_sibling = strategy == "defer" and made_from != self.revision
        known = self.document.siblings if self.document and not is_sibling else ()
        given = {
            "kind": SPACE,
            "key": KEY,
            "agent": "alice",
            "value": what if what is None or not isinstance(what, str) else value(what),
            "base": made_from,
            "found": None if made_from == self.revision else self.revision,
            "keeps": tuple(one for one in known if one.op not in ids),
        }
        return MemoryBody(**{**given, **fields})

    def put(self, what, by=ALICE, *, how=None, **fields) -> Verdict:
        return self.ledger.put(MemoryPut, self.body(what, **fields), by, **(how or {}))

    @property
    def last_id(self) -> str:
        record = self.ledger.log[-1]
        return open_record(PROTOCOL, self.ledger.mesh, record.seq, record.commit_ms,
                           record.subject, record.payload).op_id  # fmt: skip


# --- op × state ---------------------------------------------------------------------------------


def absent() -> Notebook:
    return Notebook()


def written() -> Notebook:
    book = Notebook()
    assert book.put("first") is OK
    assert book.put("second") is OK
    return book


def deleted() -> Notebook:
    book = written()
    assert book.put(None) is OK
    return book


def contested() -> Notebook:
    """One value waits beside it."""
    book = written()
    assert book.put("other", BOB, base=2, strategy="defer") is OK
    return book


def contested_before_any() -> Notebook:
    """Deferred before anything was written: made from a revision that never was."""
    book = Notebook()
    assert book.put("odd", BOB, base=1, found=0, strategy="defer") is OK
    return book


def crowded() -> Notebook:
    book = written()
    for number in range(MAX_SIBLINGS):
        assert book.put(f"other {number}", BOB, base=2, strategy="defer") is OK
    return book


STATES = (absent, written, deleted, contested, contested_before_any, crowded)
BASE, SIBLINGS, ALREADY = Verdict.BASE, Verdict.SIBLINGS, Verdict.ALREADY
FULL = Verdict.UNRESOLVED

TABLE = {
    # what the author does: absent, written, deleted, contested, contested_before_any, crowded
    "put": (lambda book: book.put("new"), (OK, OK, OK, OK, OK, OK)),
    "put, large": (
        lambda book: book.put(Stored(hash=HASH, size=99)),
        (OK, OK, OK, OK, OK, OK),
    ),
    "delete": (lambda book: book.put(None), (ALREADY, OK, ALREADY, OK, ALREADY, OK)),
    "behind, take remote": (
        lambda book: book.put("late", base=1, found=book.revision),
        (BASE, BASE, BASE, BASE, BASE, BASE),
    ),
    "behind, merged from too old": (
        lambda book: book.put("late", base=1, found=book.revision, strategy="merge"),
        (BASE, BASE, BASE, BASE, BASE, BASE),
    ),
    "merged from the present": (
        lambda book: book.put("both", strategy="merge"),
        (OK, OK, OK, OK, OK, OK),
    ),
    "behind, take local": (
        lambda book: book.put("mine", base=1, found=book.revision, strategy="local"),
        (OK, OK, OK, OK, OK, OK),
    ),
    "behind, defer": (
        lambda book: book.put("late", base=1, found=book.revision, strategy="defer"),
        (OK, OK, OK, OK, OK, FULL),
    ),
    "defer, but from the present": (
        lambda book: book.put("new", strategy="defer"),
        (OK, OK, OK, OK, OK, OK),
    ),
    "does not know the present": (
        lambda book: book.put("blind", base=999, found=None),
        (BASE, BASE, BASE, BASE, BASE, BASE),
    ),
    "local, does not know the present": (
        lambda book: book.put("blind", base=1, found=999, strategy="local"),
        (BASE, BASE, BASE, BASE, BASE, BASE),
    ),
    "resolves all": (
        lambda book: book.put("all", resolves=tuple(book.siblings)),
        (OK, OK, OK, OK, OK, OK),
    ),
    "resolves what is not there": (
        lambda book: book.put("all", resolves=(digest(b"nobody"),)),
        (SIBLINGS,) * 6,
    ),
    "resolves while deferring": (
        lambda book: book.put(
            "x", base=1, found=book.revision, strategy="defer", resolves=(digest(b"n"),)
        ),
        (SIBLINGS,) * 6,
    ),
    "keeps what is not there": (
        lambda book: book.put("x", keeps=(Sibling(op=digest(b"nobody"), seq=1),)),
        (SIBLINGS,) * 6,
    ),
    "forgets the siblings": (
        lambda book: book.put("x", keeps=()),
        (OK, OK, OK, SIBLINGS, SIBLINGS, SIBLINGS),
    ),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("what", TABLE)
def test_every_op_in_every_state(what, state):
    act, verdicts = TABLE[what]
    book = state()
    before = book.document
    verdict = act(book)
    assert verdict is verdicts[STATES.index(state)]
    if verdict is not OK:
        assert book.document == before


def test_a_write_has_its_sequence_as_revision_and_leaves_the_siblings():
    book = contested()
    waiting = book.document.siblings
    assert book.put(Stored(hash=HASH, size=7)) is OK
    document = book.document
    assert document.revision == len(book.ledger.log)
    assert (document.value, document.siblings) == (Stored(hash=HASH, size=7), waiting)
    assert (document.author, document.agent, document.op_id) == (ALICE.did, "alice", book.last_id)
    assert document.written == document.hlc


def test_a_deferred_value_changes_no_revision_and_ends_with_the_put_that_names_it():
    book = written()
    revision = book.revision
    assert book.put(Stored(hash=HASH, size=1), BOB, base=2, strategy="defer") is OK
    first = book.last_id
    assert book.put("third", BOB, base=2, strategy="defer") is OK
    assert book.revision == revision
    assert book.document.value == value("second")
    assert book.document.siblings[0] == Sibling(op=first, seq=len(book.ledger.log) - 1, hash=HASH)
    assert MEMORY.blobs(book.document)[0] == (HASH,)
    assert MEMORY.unfinished(book.document)
    assert book.put("both", resolves=(first,)) is OK
    assert book.siblings == [book.siblings[0]] != [first]
    assert book.put("all", resolves=tuple(book.siblings)) is OK
    assert not MEMORY.unfinished(book.document)


def test_one_sibling_named_twice_is_not_two():
    book = contested()
    (one,) = book.siblings
    assert book.put("x", resolves=(one, one), keeps=()) is SIBLINGS


def test_a_record_on_anothers_document_is_on_the_wrong_subject():
    book = written()
    draft = book.ledger.draft(MemoryPut, book.body("x", key="another"), ALICE)
    subject = f"ap.{book.ledger.mesh}.memo.{SPACE}.{name_of_key(KEY)}"
    assert book.ledger.append(subject, draft.payload, stamp=book.ledger.now) is Verdict.SUBJECT


@pytest.mark.parametrize(
    "command, verdict",
    [
        ("/memory", OK),
        ("/memory/write", OK),
        ("/memory/read", Verdict.COMMAND),
        ("/job/schedule", Verdict.COMMAND),
    ],
)
def test_writing_needs_the_command_for_the_space(command, verdict):
    court = Court()
    link = court.grant(OWNER, ALICE, cmd=command, pol=[["like", ".kind", "notes.*"]])
    book = Notebook(court.ledger)
    assert book.put("x", how={"auth": (link,)}) is verdict
    other = book.body("x", kind="secret.team", base=0, found=None)
    refused = Verdict.POLICY if verdict is OK else verdict
    assert court.ledger.put(MemoryPut, other, ALICE, auth=(link,)) is refused
    assert court.ledger.put(MemoryPut, book.body("y"), BOB) is Verdict.NO_CHAIN


def test_the_words_say_what_was_done():
    book = contested()
    told = [
        open_record(PROTOCOL, book.ledger.mesh, r.seq, r.commit_ms, r.subject, r.payload).op
        for r in book.ledger.log
        if ".memo." in r.subject
    ]
    assert [op.words() for op in told] == [
        "wrote 'plan of the day' as alice",
        "wrote 'plan of the day' as alice",
        "deferred a value of 'plan of the day' as alice, made from revision 2",
    ]
    over = MemoryPut(**{**_fields(told[0]), "body": book.body(None, base=1, strategy="local")})
    assert over.words() == "deleted 'plan of the day' as alice over revision 3"


def _fields(op) -> dict:
    return {name: getattr(op, name) for name in op.__struct_fields__}


# --- what no history can do -------------------------------------------------------------------

ACTS = st.lists(
    st.tuples(
        st.sampled_from(["remote", "local", "merge", "defer"]),
        st.integers(0, 6),  # how far behind its author is
        st.sampled_from(["put", "delete", "resolve one", "resolve all", "junk"]),
        st.booleans(),  # whether it says what it found
    ),
    max_size=24,
)


def played(acts) -> tuple[Notebook, list]:
    """A history of puts by authors that are more or less behind; what each made from what."""
    book, revisions, deeds = Notebook(), [0], []
    for number, (strategy, behind, act, says) in enumerate(acts):
        if act == "junk":
            subject = f"ap.{book.ledger.mesh}.memo.{SPACE}.{name_of_key(KEY)}"
            assert book.ledger.append(subject, b"junk", stamp=book.ledger.now) is not OK
            continue
        base = revisions[max(0, len(revisions) - 1 - behind)]
        ids = tuple(book.siblings)
        resolves = {"resolve one": ids[:1], "resolve all": ids}.get(act, ())
        found = book.revision if says and base != book.revision else None
        before = book.document
        verdict = book.put(
            None if act == "delete" else f"value {number}",
            base=base,
            found=found,
            strategy=strategy,
            resolves=resolves,
        )
        deeds.append((strategy, base, resolves, before, verdict, book.document))
        if book.revision != revisions[-1]:
            revisions.append(book.revision)
    return book, deeds


@given(ACTS)
@settings(max_examples=60, deadline=None)
def test_no_update_is_lost_that_the_strategy_forbids(acts):
    _, deeds = played(acts)
    for strategy, base, resolves, before, verdict, after in deeds:
        revision = before.revision if before else 0
        listed = {one.op for one in before.siblings} if before else set()
        if verdict is not OK:
            assert after == before
            continue
        left = {one.op for one in after.siblings}
        if after.revision != revision and strategy != "local":
            assert base == revision  # nothing is replaced that its author had not read
        if after.revision == revision:
            assert strategy == "defer"
            assert len(left - listed) == 1  # and it is in the list
        # No deferred value disappears unless a write names it.
        assert listed - left == set(resolves)
        assert len(after.siblings) <= MAX_SIBLINGS


@given(ACTS)
@settings(max_examples=60, deadline=None)
def test_a_lane_entered_at_its_last_write_has_the_same_state(acts):
    book, _ = played(acts)
    if book.document is None or not MEMORY.entry(book.document):
        return
    ledger, entry = book.ledger, MEMORY.entry(book.document)
    opened = {
        r.seq: open_record(PROTOCOL, ledger.mesh, r.seq, r.commit_ms, r.subject, r.payload)
        for r in ledger.log
    }
    first = opened[entry]
    state = MEMORY.enter(first.op, first.seq, first.op_id)
    lane = MEMORY.lane((entry,), state, 0, max(first.op.hlc[0], first.commit_ms))
    for record in ledger.log[entry:]:
        lane = ledger.history.settle(lane, opened[record.seq], lambda _: None).lane
    assert lane == ledger.reader.all_lanes[document_key(SPACE, KEY)]
