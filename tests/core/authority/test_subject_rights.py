"""What a scope comes to in subjects: for every family, by its branches and nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.authority.scope import EVERYTHING, NOTHING, Scope, admits, beyond
from antiphon.core.authority.subject_rights import (
    WHOLE,
    SubjectRights,
    exceeds,
    kinds_shown,
    reading_of,
    rights_on,
)
from antiphon.core.families.jobs.ops import JOB
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.branches import Branch
from antiphon.core.record.subjects import matches
from tests.families.polls import POLLS, WITH_POLLS
from tests.families.polls.ops import CLOSE, POLL, VOTE

STEMS = ("jobs.*", "plan", "forget")
CALLED = ("jobs.job", "jobs.wait", "jobs.0", "jobs.1", "jobs.2", "plan")
"""Where `/job/schedule` writes."""
READ = (*STEMS, "lock", "memo")
"""What `/job/read` shows."""
RELAYED = {f"ctl.{one}{end}" for one in ("evidence", "ucan", "revoke") for end in ("", ".>")}


def held(**by_command: tuple[str, ...]) -> Scope:
    """As `job_read=("a",)` for the command /job/read."""
    named = {f"/{name.replace('_', '/')}": kinds for name, kinds in by_command.items()}
    return Scope(by_command=named)


def sets(rights: SubjectRights) -> tuple[set[str], ...]:
    lists = (rights.shown, rights.heard, rights.unheard, rights.written, rights.relayed)
    assert all(len(set(one)) == len(one) for one in lists)
    return tuple(map(set, lists))


@pytest.mark.parametrize(
    "scope, shown, heard, unheard, written",
    [
        (NOTHING, {"ctl.>", "seal"}, {"ctl.>", "seal"}, set(), set()),
        (
            EVERYTHING,
            {">"},
            {"ctl.>", "seal", "jobs.*.>", "plan.>", "lock.>", "memo.>", "forget.>"},
            set(),
            {f"{one}.>" for one in (*CALLED, "lock", "memo", "forget")},
        ),
        (held(job_cancel=("a",)), {"ctl.>", "seal"}, {"ctl.>", "seal"}, set(), {"jobs.job.a.*"}),
        (
            held(job_claim=("a", "a.b", "c.>"), job_schedule=("d.e",)),
            {"ctl.>", "seal"}
            | {f"{one}.{end}" for one in STEMS for end in ("a.*", "a.b.*", "c.*.>")},
            {"ctl.>", "seal"} | {f"{one}.{end}" for one in STEMS for end in ("a.b.*", "c.*.>")},
            {f"{one}.a.b.*.>" for one in STEMS},
            {"jobs.job.a.*", "jobs.job.a.b.*", "jobs.job.c.*.>"}
            | {f"{one}.d.e.*" for one in CALLED},
        ),
        (
            held(memory_read=("a",), memory=("b.>",)),
            {"ctl.>", "seal", "memo.a.*", "memo.b.*.>"},
            {"ctl.>", "seal", "memo.a.*", "memo.b.*.>"},
            {"memo.a.*.>"},
            {"memo.b.*.>"},
        ),
        (
            held(job=("a", "a.>")),
            {"ctl.>", "seal"} | {f"{one}.{end}" for one in READ for end in ("a.*", "a.*.>")},
            {"ctl.>", "seal"} | {f"{one}.{end}" for one in READ for end in ("a.*", "a.*.>")},
            set(),
            {f"{one}.{end}" for one in (*CALLED, "forget") for end in ("a.*", "a.*.>")},
        ),
    ],
)
def test_what_jobs_come_to_written_out(scope, shown, heard, unheard, written):
    rights = rights_on(PROTOCOL.branches, scope)
    assert sets(rights) == (shown, heard, unheard, written, RELAYED)


def test_a_family_brings_its_own_commands_and_changes_nothing_for_others():
    scope = held(poll_vote=("a.>", "b"))
    rights = rights_on(WITH_POLLS.branches, scope)
    polls = {f"{one}.{end}" for one in ("poll", "vote", "close") for end in ("a.*.>", "b.*")}
    unheard = {f"{one}.b.*.>" for one in ("poll", "vote", "close")}
    relayed = {*RELAYED, "close.>"}
    others = {"ctl.>", "seal"}
    assert sets(rights) == (
        others | polls,
        others | polls,
        unheard,
        {"vote.a.*.>", "vote.b.*"},
        relayed,
    )


def test_whoever_reads_every_job_reads_the_whole_log_whatever_families_there_are():
    """Or it would keep no tree, and could not check seals."""
    assert rights_on(WITH_POLLS.branches, held(job_read=(">",))).shown == WHOLE
    assert rights_on(WITH_POLLS.branches, EVERYTHING).shown == WHOLE
    hidden = msgspec.structs.replace(
        POLLS, branches=(Branch(stem="poll", read_by=("/poll/read",)),)
    )
    with pytest.raises(ValueError, match="could not check seals"):
        _ = PROTOCOL.adding(hidden).branches


def test_where_there_is_no_kind_a_command_must_be_held_for_every_kind():
    branches = (
        Branch(stem="ctl.note", shape="control", read_by=("/x/read",), written_by=("/x/write",)),
        Branch(stem="book", shape="single", read_by=("/x/read",), written_by=("/x/write",)),
        Branch(stem="page", shape="single", via_gate=True),
        Branch(stem="all", written_by=("/x/write",)),
    )
    some = rights_on(branches, held(x=("a.>",)))
    shown = {"ctl.>", "page", "all.>"}
    assert sets(some) == (shown, shown, set(), {"all.a.*.>"}, {"page"})
    every = rights_on(branches, held(x=(">",)))
    written = {"ctl.note", "ctl.note.>", "book", "all.>"}
    assert sets(every) == (set(WHOLE), shown | {"book"}, set(), written, {"page"})


KINDS = st.sampled_from(["a", "a.b", "a.b.c", "b", "b.a", "c"])
FILTERS = st.one_of(KINDS, KINDS.map(lambda kind: f"{kind}.>"), st.just(">"))
COMMANDS = st.sampled_from(["/", "/poll", "/poll/read", "/poll/vote", "/poll/open", "/job/read"])
SCOPES = st.dictionaries(
    COMMANDS, st.lists(FILTERS, min_size=1, max_size=3, unique=True).map(tuple), max_size=3
).map(lambda by_command: Scope(by_command=by_command))


@given(scope=SCOPES, branch=st.sampled_from([POLL, VOTE, CLOSE]), kind=KINDS)
def test_a_subject_is_shown_and_written_to_whoever_holds_a_command_for_its_kind(
    scope, branch, kind
):
    rights = rights_on(WITH_POLLS.branches, scope)
    subject = f"{branch.stem}.{kind}.lunch"
    reads = any(admits(one, kind) for one in scope.of(*branch.read_by))
    assert any(matches(one, subject) for one in rights.shown) == reads
    if branch.written_by:
        writes = any(admits(one, kind) for one in scope.of(*branch.written_by))
        assert any(matches(one, subject) for one in rights.written) == writes
    heard = any(matches(one, subject) for one in rights.heard)
    assert heard <= reads
    assert not (heard and any(matches(one, subject) for one in rights.unheard))


@given(one=SCOPES, other=SCOPES)
def test_what_is_shown_exceeds_what_another_is_shown_exactly_where_kinds_do(one, other):
    mine, theirs = (rights_on(WITH_POLLS.branches, scope).shown for scope in (one, other))
    uses = {branch.read_by for branch in WITH_POLLS.branches if branch.read_by}
    assert exceeds(mine, theirs) == any(beyond(one.of(*use), other.of(*use)) for use in uses)


@pytest.mark.parametrize(
    "asked",
    ["*.>", "jobs.job.*.>", "*.a.*", "jobs.job.a.>", "jobs.job.a", "jobs.job.b.*.>", ">", "jobs.>"],
)
def test_what_nobody_was_given_is_more(asked):
    assert exceeds([asked], ["ctl.>", "jobs.job.a.*.>", "jobs.job.b.*"])


@pytest.mark.parametrize(
    "asked",
    [
        "ctl.>",
        "ctl.ucan.>",
        "jobs.job.a.*.>",
        "jobs.job.a.b.*",
        "jobs.job.a.b.*.>",
        "jobs.job.a.*.*",
    ],
)
def test_what_lies_within_is_not(asked):
    assert not exceeds([asked], ["ctl.>", "jobs.job.a.*.>", "jobs.job.b.*"])


def test_what_goes_through_the_gate_is_written_by_nobody_else_whatever_it_holds():
    branch = Branch(stem="close", written_by=("/poll/open",), via_gate=True)
    rights = rights_on([branch], Scope(by_command={"/poll/open": (">",)}))
    assert rights.written == ()
    assert rights.relayed == ("close.>",)


@pytest.mark.parametrize(
    "subject, needed",
    [
        ("ap.m.jobs.job.secret.x.0f", ("/job/read", "secret.x")),
        ("ap.m.jobs.1.secret.x.0f", ("/job/read", "secret.x")),
        ("ap.m.jobs.wait.secret.0f", ("/job/read", "secret")),
        ("ap.m.memo.secret.notes.0f", ("/memory/read", "secret.notes")),
        ("ap.m.lock.repo.0f", ("/lock/take", "repo")),
        ("ap.m.jobs.job.>", ("/job/read", "")),
        ("ap.m.nothing.of.ours", ("/", "")),
        (">", ("/", "")),
    ],
)
def test_what_it_takes_to_read_a_subject(subject, needed):
    assert reading_of(PROTOCOL.branches, subject) == needed


@pytest.mark.parametrize(
    "scope, kinds",
    [
        (NOTHING, set()),
        (EVERYTHING, {">"}),
        (held(job_read=(">",)), {">"}),
        (held(job_claim=("a", "a.b", "c.>"), job_read=("d.e.>",)), {"a", "a.b", "c.>", "d.e.>"}),
        (held(lock_take=("a",), memory_read=("b.>",)), set()),
    ],
)
def test_what_is_shown_tells_the_kinds_of_jobs_again(scope, kinds):
    shown = rights_on(PROTOCOL.branches, scope).shown
    assert set(kinds_shown(JOB, shown)) == kinds
