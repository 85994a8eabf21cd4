"""Kinds, subjects and lanes: each record has one place, and each filter reads one lane."""

import re

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobOffer, JobSchedule, ScheduleBody
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.manifest import Manifest, job_id
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, subjects
from antiphon.core.record.ids import mesh_id
from antiphon.core.record.op import Kind, subject_of
from antiphon.errors import Malformed
from tests.core.strategies import BRISK, THOROUGH, any_op, hexes, kinds, texts
from tests.job_lanes import job_of

MESH = "a" * 16
JOB = "1" * 64

GOOD_KINDS = [
    "a",
    "render",
    "render.video.h264",
    "com.example.render",
    "x-1.y_2",
    "a.1",
    "a.0.1.2",
    "call",
    "wait.call.job",
    "a" * 63,
    ".".join("abcdefgh"),
    ".".join(["a" * 63, "b" * 63]),
]
BAD_KINDS = [
    "",
    ".",
    "a.",
    ".a",
    "a..b",
    "A",
    "a.B",
    "1",
    "1.render",
    "-a",
    "a-",
    "_a",
    "a_",
    "a b",
    "a.*",
    ">",
    "a.>",
    "a/b",
    "é",
    "a.é",
    "a\n",
    "a\0",
    "a" * 64,
    "a." + "1" * 64,
    ".".join("abcdefghi"),
    ".".join(["a" * 63, "b" * 63, "c"]),
]


@pytest.mark.req("M25")
@pytest.mark.parametrize("kind", GOOD_KINDS)
def test_a_dotted_lower_case_name_is_a_kind(kind):
    assert subjects.is_kind(kind)
    assert subjects.check_kind(kind) == kind
    assert msgspec.convert(kind, Kind) == kind


@pytest.mark.req("M25")
@pytest.mark.parametrize("kind", BAD_KINDS)
def test_anything_else_is_none(kind):
    assert not subjects.is_kind(kind)
    with pytest.raises(Malformed) as refusal:
        subjects.check_kind(kind)
    assert refusal.value.reason == "kind"
    assert refusal.value.hint
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(kind, Kind)


@THOROUGH
@given(texts | kinds | st.text("ab.-_0A", max_size=20))
def test_ops_and_subjects_agree_on_what_a_kind_is(text):
    try:
        msgspec.convert(text, Kind)
    except msgspec.ValidationError:
        assert not subjects.is_kind(text)
    else:
        assert subjects.is_kind(text)


@pytest.mark.req("M25")
@pytest.mark.parametrize(
    "prefix, kind, expected",
    [
        ("a", "a", True),
        ("a", "a.b", True),
        ("a", "a.b.c", True),
        ("a.b", "a.b.c", True),
        ("a", "ab", False),
        ("a", "ab.c", False),
        ("a.b", "a", False),
        ("a.b", "a.bc", False),
        ("b", "a.b", False),
        ("a", "a-b", False),
    ],
)
def test_a_prefix_covers_whole_words_only(prefix, kind, expected):
    assert subjects.covers(prefix, kind) is expected


def test_the_words_of_each_subject():
    assert subjects.root(MESH) == f"ap.{MESH}"
    assert subjects.control(MESH, "route.a.b") == f"ap.{MESH}.ctl.route.a.b"
    assert subjects.all_control(MESH) == f"ap.{MESH}.ctl.>"
    assert subjects.seal(MESH) == f"ap.{MESH}.seal"
    assert job_subjects.lane(MESH, "a.b", JOB) == (
        f"ap.{MESH}.jobs.wait.a.b.{JOB}",
        f"ap.{MESH}.jobs.0.a.b.{JOB}",
        f"ap.{MESH}.jobs.1.a.b.{JOB}",
        f"ap.{MESH}.jobs.2.a.b.{JOB}",
        f"ap.{MESH}.jobs.job.a.b.{JOB}",
    )


def test_one_filter_is_all_of_a_lane_and_nothing_else():
    lane = f"ap.{MESH}.jobs.*.a.b.{JOB}"
    assert all(subjects.matches(lane, one) for one in job_subjects.lane(MESH, "a.b", JOB))
    for kind in ("a", "b", "a.b.c", "x.a.b"):
        assert not any(subjects.matches(lane, one) for one in job_subjects.lane(MESH, kind, JOB))


NASTY = ["a", "a.b", "b", "jobs", "wait", "job", "jobs.a", "jobs.1", "jobs.1.a", "job.a",
         "wait.job", "job.1", "job.1.a", "a.1", "a.job", "a.jobs", "ctl", "seal"]  # fmt: skip
nasty_kinds = kinds | st.sampled_from(NASTY)


@THOROUGH
@given(nasty_kinds, hexes, nasty_kinds, hexes)
def test_the_filters_of_a_lane_read_that_lane_and_no_other(kind, job, other_kind, other_job):
    filters = job_subjects.lane(MESH, kind, job)
    for subject in job_subjects.lane(MESH, kind, job):
        assert sum(subjects.matches(each, subject) for each in filters) == 1
    assume((kind, job) != (other_kind, other_job))
    for pair in ((other_kind, other_job), (other_kind, job), (kind, other_job)):
        if pair == (kind, job):
            continue
        for subject in job_subjects.lane(MESH, *pair):
            assert not any(subjects.matches(each, subject) for each in filters)


@pytest.mark.parametrize("kind", NASTY)
@pytest.mark.parametrize("other", NASTY)
def test_nasty_kinds_keep_apart_under_one_job_id(kind, other):
    ours = set(job_subjects.lane(MESH, kind, JOB))
    theirs = set(job_subjects.lane(MESH, other, JOB))
    assert (ours == theirs) == (kind == other)
    assert ours.isdisjoint(theirs) == (kind != other)
    for each in job_subjects.lane(MESH, kind, JOB):
        matched = {subject for subject in theirs if subjects.matches(each, subject)}
        assert bool(matched) == (kind == other)


@THOROUGH
@given(nasty_kinds, hexes)
def test_a_subject_tells_its_lane_and_its_slot(kind, job):
    for slot, subject in enumerate(job_subjects.lane(MESH, kind, job)):
        assert PROTOCOL.place_of(subject) == (("jobs", kind, job), slot)


STRANGE = [
    f"ap.{MESH}.ctl.genesis",
    f"ap.{MESH}.ctl.route.render",
    f"ap.{MESH}.ctl.render.{JOB}",
    f"ap.{MESH}.seal",
    f"ap.{MESH}.seal.render.{JOB}",
    f"ap.{MESH}.else.render.{JOB}",
    f"ap.{MESH}.jobs",
    f"ap.{MESH}.jobs.1",
    f"ap.{MESH}.jobs.3.render.{JOB}",
    f"ap.{MESH}.jobs.01.render.{JOB}",
    f"ap.{MESH}.jobs.-1.render.{JOB}",
    f"ap.{MESH}.jobs.High.render.{JOB}",
    f"ap.{MESH}.jobs.highest.render.{JOB}",
    f"ap.{MESH}.jobs.hi.gh.render.{JOB}",
    f"ap.{MESH}.jobs.１.render.{JOB}",
    f"ap.{MESH}.jobs.x.render.{JOB}",
    f"ap.{MESH}.jobs.render.{JOB}",
    f"ap.{MESH}.jobs.render.video.{JOB}",
]


@pytest.mark.parametrize("subject", STRANGE)
def test_a_subject_that_no_op_has_belongs_to_no_lane(subject):
    # A lane's wildcard filters may read such a record; nothing about it may move the lane.
    place = PROTOCOL.place_of(subject)
    assert place is None or place.key.family in {"control", "seals"}


@THOROUGH
@given(any_op)
def test_every_op_has_one_subject_and_job_ops_lie_in_their_lane(op):
    op_bytes = codec.encode(op)
    subject = subject_of(op, op_bytes)
    mesh = op.mesh or mesh_id(op_bytes)
    assert subject.startswith(f"ap.{mesh}.")
    assert re.fullmatch(r"[A-Za-z0-9._-]+", subject)
    pair = job_of(subject)
    if PROTOCOL.family_of[type(op)].is_control:
        assert pair is None
        assert subjects.matches(subjects.all_control(mesh), subject)
        return
    if isinstance(op, MeshSeal):
        assert pair is None
        assert subject == subjects.seal(mesh)
        return
    if PROTOCOL.family_of[type(op)].name != "jobs":
        assert pair is None
        return
    assert pair is not None
    assert pair[0] == op.body.kind
    assert subject in job_subjects.lane(mesh, *pair)
    expected = {JobSchedule: {0, 1, 2, 3}, JobOffer: {1, 2, 3}}.get(type(op), {4})
    assert PROTOCOL.place_of(subject).slot in expected


@pytest.mark.parametrize(
    "fields, slot",
    [
        ({}, "jobs.1"),
        ({"priority": "high"}, "jobs.0"),
        ({"priority": "low"}, "jobs.2"),
        ({"not_before": 0}, "jobs.wait"),
        ({"concurrency": "gpu", "priority": "high"}, "jobs.wait"),
        ({"start_by": 5}, "jobs.1"),
        ({"requires": ("gpu",)}, "jobs.1"),
    ],
)
def test_a_schedule_is_called_at_its_priority_unless_it_waits(fields, slot):
    manifest = Manifest(command=("true",), args=(), timeout=0)
    body = ScheduleBody(kind="a.b", manifest=manifest, **fields)
    op = JobSchedule(v=1, mesh=MESH, author="x", hlc=(0, 0), prev=0, deps=(), auth=(), body=body)
    assert subject_of(op) == f"ap.{MESH}.{slot}.a.b.{job_id(manifest)}"


# --- filters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, subject, expected",
    [
        ("a.b", "a.b", True),
        ("a.b", "a", False),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("*", "a.b", False),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c.d", True),
        ("a", "ab", False),
    ],
)
def test_a_filter_matches_token_by_token(pattern, subject, expected):
    assert subjects.matches(pattern, subject) is expected


tokens = st.sampled_from(["a", "b", "c"])


@BRISK
@given(
    st.lists(tokens | st.just("*"), min_size=1, max_size=4),
    st.booleans(),
    st.lists(tokens, min_size=1, max_size=5),
)
def test_filters_agree_with_a_regular_expression(pattern, rest, subject):
    wanted = [*pattern, ">"] if rest else pattern
    spelt = {"*": r"[^.]+", ">": r"[^.]+(\.[^.]+)*"}
    expression = r"\.".join(spelt.get(token, token) for token in wanted)
    joined = ".".join(subject)
    assert subjects.matches(".".join(wanted), joined) == bool(re.fullmatch(expression, joined))


@BRISK
@given(nasty_kinds, nasty_kinds, hexes, st.permutations(PRIORITIES))
def test_the_filter_for_calls_reads_one_kind_or_all_below_a_prefix(kind, other, job, order):
    priority, another, _ = order
    subject = job_subjects.call(MESH, priority, other, job)
    exact = job_subjects.calls_of(MESH, priority, kind, below=False)
    below = job_subjects.calls_of(MESH, priority, kind, below=True)
    assert subjects.matches(exact, subject) == (kind == other)
    assert subjects.matches(below, subject) == subjects.covers(kind, other)
    assert not subjects.matches(below, job_subjects.call(MESH, another, other, job))
    assert not subjects.matches(below, job_subjects.job(MESH, other, job))
