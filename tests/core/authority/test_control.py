"""What holds for the whole mesh, and from where on (spec §7.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import opened_record
from antiphon.core.authority.rules import Rules, contradiction
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.families.mesh.ops import Genesis, MeshGenesis, MeshRoute, RouteBody
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import mesh_id
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY, signed
from tests.core.ledger import T0, Ledger, Reader, Story
from tests.core.strategies import BRISK

OK, STALE, NOT_OWNER = Verdict.OK, Verdict.STALE, Verdict.NOT_OWNER


def genesis(by=OWNER, *, owner=OWNER, mesh="", hlc=(T0, 0), prev=0, deps=(), auth=(), rules=None):
    body = Genesis(name="m", owner=owner.did, recovery=RECOVERY.did, rules=rules or Rules())
    op = MeshGenesis(
        v=1, mesh=mesh, author=by.did, hlc=hlc, prev=prev, deps=deps, auth=auth, body=body
    )
    return signed(by, op)


def found(record, *, commit_ms=T0, seq=1):
    mesh = record.op.mesh or mesh_id(record.op_bytes)
    history = ControlHistory(PROTOCOL, mesh)
    opened = opened_record.open_record(
        PROTOCOL, mesh, seq, commit_ms, record.subject, record.payload
    )
    return history.apply(opened), history


# --- genesis ---------------------------------------------------------------------------------


@pytest.mark.req("M3")
def test_genesis_founds_the_mesh_with_the_owner_as_coordinator():
    verdict, history = found(genesis(rules=Rules(attempts=7)))
    assert verdict is OK
    control = history.current
    assert (control.owner, control.recovery) == (OWNER.did, RECOVERY.did)
    assert control.coordinator == OWNER.did
    assert control.rules.attempts == 7
    assert control.routes == {}


DEP = (1, "blake3:" + "0" * 64)


@pytest.mark.parametrize(
    "how, verdict",
    [
        ({"by": ALICE}, NOT_OWNER),
        ({"mesh": "a" * 16}, Verdict.GENESIS),
        ({"prev": 1}, Verdict.GENESIS),
        ({"deps": (DEP,)}, Verdict.GENESIS),
        ({"auth": ("x",)}, Verdict.GENESIS),
        ({"rules": Rules(lease_min_ms=3_999)}, Verdict.RULES),
        ({"hlc": (T0 + 2_001, 0)}, Verdict.DRIFT),
        ({"hlc": (T0 + 2_000, 0)}, OK),
        ({"hlc": (0, 0)}, OK),
    ],
    ids=str,
)
def test_a_genesis_that_is_none_founds_nothing(how, verdict):
    got, history = found(genesis(**how))
    assert got is verdict
    assert (history.current is not None) == (verdict is OK)


def test_nothing_is_valid_before_genesis():
    ledger = Ledger()
    route = ledger.draft(MeshRoute, RouteBody(kind="a", target=ALICE.did), OWNER)
    reader = Reader(ledger.mesh, [])
    for at, draft in enumerate([route, signed(OWNER, ledger_schedule(ledger))], 1):
        opened = opened_record.open_record(
            PROTOCOL, ledger.mesh, at, T0, draft.subject, draft.payload
        )
        assert opened.fault is None
        record = type(ledger.log[0])(
            seq=at, commit_ms=T0, subject=draft.subject, payload=draft.payload
        )
        assert reader.judge(record) is Verdict.GENESIS
    assert reader.history.current is None


def ledger_schedule(ledger):
    story = Story(ledger)
    body = ScheduleBody(kind=story.kind, manifest=story.manifest)
    return ledger.draft(JobSchedule, body, OWNER).op


def test_the_same_genesis_again_is_rejected():
    ledger = Ledger()
    first = ledger.log[0]
    before = ledger.history.current
    assert ledger.append(first.subject, first.payload) is Verdict.GENESIS
    assert ledger.history.current is before


# --- the owner's ops -------------------------------------------------------------------------


@pytest.mark.req("M2")
@pytest.mark.parametrize("by", [ALICE, RECOVERY], ids=lambda by: by.name)
def test_only_the_owner_authors_control_ops(by):
    ledger = Ledger()
    before = ledger.history.current
    assert ledger.route("a", ALICE, by) is NOT_OWNER
    assert ledger.coordinator(ALICE, by) is NOT_OWNER
    assert ledger.rules(by, attempts=9) is NOT_OWNER
    assert ledger.history.current is before


@pytest.mark.req("M2")
def test_being_coordinator_or_route_target_does_not_make_one_an_owner():
    ledger = Ledger()
    assert ledger.coordinator(ALICE) is OK
    assert ledger.route("a", ALICE) is OK
    assert ledger.coordinator(BOB, ALICE) is NOT_OWNER
    assert ledger.route("a", BOB, ALICE) is NOT_OWNER


@pytest.mark.req("M3", "M16")
def test_one_coordinator_holds_at_every_point_of_the_log():
    ledger = Ledger()
    ledger.coordinator(ALICE)
    ledger.route("a", BOB)
    ledger.coordinator(BOB)
    ledger.coordinator(CAROL, ALICE)
    ledger.coordinator(OWNER)
    names = [ledger.history.at(seq, T0).coordinator for seq in range(2, 8)]
    #         before 2   3          4          5        6        7
    assert names == [OWNER.did, ALICE.did, ALICE.did, BOB.did, BOB.did, OWNER.did]


@pytest.mark.req("M14", "M16")
@pytest.mark.parametrize("back, verdict", [(1, STALE), (0, Verdict.EQUIVOCATION), (-1, OK)])
def test_an_owners_op_that_is_not_newer_than_the_last_is_rejected(back, verdict):
    ledger = Ledger()
    assert ledger.coordinator(ALICE, at=1_000) is OK
    # Whatever the op is about: all of the owner's ops form one line.
    assert ledger.route("a", BOB, at=1_000 - back) is verdict
    assert ledger.history.current.route_for("a") == (BOB.did if verdict is OK else None)


def test_the_logical_part_decides_between_equal_wall_times():
    ledger = Ledger()
    assert ledger.coordinator(ALICE, at=1_000, logical=5) is OK
    assert ledger.coordinator(BOB, at=1_000, logical=4) is STALE
    assert ledger.coordinator(BOB, at=1_000, logical=6) is OK


def test_a_rejected_owners_op_does_not_make_later_ones_stale():
    ledger = Ledger()
    assert ledger.coordinator(ALICE, at=1_500, prev=99) is Verdict.PREV
    assert ledger.coordinator(BOB, at=1_000) is OK


@pytest.mark.parametrize(
    "at, stamp, verdict",
    [(2_001, 0, Verdict.DRIFT), (2_000, 0, OK), (100, 100 + 5_000_000_000, Verdict.TOO_OLD)],
)
def test_an_owners_op_is_bound_to_its_commit_time(at, stamp, verdict):
    assert Ledger().coordinator(ALICE, at=at, stamp=stamp) is verdict


def test_control_ops_name_the_last_record_on_their_subject_accepted_or_not():
    ledger = Ledger()
    assert ledger.route("a", ALICE, prev=1) is Verdict.PREV  # sequence 2
    assert ledger.route("a", ALICE, prev=0) is Verdict.PREV  # 3: a rejected one counts too
    assert ledger.route("b", ALICE, prev=0) is OK  # 4: another subject
    assert ledger.route("a", ALICE, prev=3) is OK
    assert ledger.history.tail(f"ap.{ledger.mesh}.ctl.route.a") == 5


@pytest.mark.req("M18")
@pytest.mark.parametrize("seq, wrong, verdict", [
    (1, False, OK), (1, True, Verdict.MISSING_DEP), (9, True, Verdict.MISSING_DEP),
])  # fmt: skip
def test_a_control_op_needs_what_it_depends_on(seq, wrong, verdict):
    ledger = Ledger()
    dep = (seq, DEP[1]) if wrong else ledger.dep(seq)
    assert ledger.coordinator(ALICE, deps=(dep,)) is verdict


# --- rules -----------------------------------------------------------------------------------


def test_rules_replace_the_earlier_ones_as_a_whole():
    ledger = Ledger(attempts=9, max_drift_ms=1_000)
    assert ledger.rules(attempts_max=50) is OK
    assert ledger.history.at(2, T0).rules == Rules(authority="open", attempts=9, max_drift_ms=1_000)
    assert ledger.history.current.rules == Rules(authority="open", attempts_max=50)


CONTRADICTIONS = [
    {"lease_min_ms": 3_999},
    {"max_drift_ms": 2_501},
    {"lease_min_ms": 30_001},
    {"lease_min_ms": 4_000_000, "lease_ms": 4_000_000, "lease_ms_max": 4_000_000},
    {"lease_ms": 4_999},
    {"lease_ms": 3_600_001},
    {"lease_ms": 120_001},
    {"lease_ms_max": 29_999},
    {"lease_ms_max": 3_600_001},
    {"attempts": 101},
    {"attempts_max": 2},
    {"horizon_ms": 3_599_999, "start_by_ms": 1_000},
    {"max_drift_ms": 99},
    {"start_by_ms": 30 * 86_400_000 + 1},
    {"horizon_ms": 7 * 86_400_000 - 1},
]
AGREEMENTS = [
    {},
    {"lease_min_ms": 4_000},
    {"max_drift_ms": 2_500},
    {"lease_min_ms": 30_000},
    {"lease_min_ms": 3_600_000, "lease_ms": 3_600_000, "lease_ms_max": 3_600_000},
    {"lease_ms": 120_000},
    {"lease_ms_max": 30_000},
    {"attempts": 100},
    {"attempts_max": 3},
    {"horizon_ms": 3_600_000, "start_by_ms": 1_000},
    {"max_drift_ms": 100},
    {"horizon_ms": 7 * 86_400_000},
]


@pytest.mark.parametrize("values", CONTRADICTIONS, ids=str)
def test_rules_that_cannot_hold_together_are_rejected(values):
    assert contradiction(Rules(**values))
    ledger = Ledger()
    before = ledger.history.current
    assert ledger.rules(**values) is Verdict.RULES
    assert ledger.history.current is before


@pytest.mark.parametrize("values", AGREEMENTS, ids=str)
def test_rules_at_the_edge_of_contradiction_hold(values):
    assert contradiction(Rules(**values)) is None
    assert Ledger().rules(**values) is OK


def test_selection_goes_by_the_longest_prefix():
    ledger = Ledger(selection=(("a", "rendezvous"), ("a.b", "queue"), ("a.b.c", "rendezvous")))
    by = ledger.history.current.selection_for
    assert [by(kind) for kind in ("a", "a.x", "a.b", "a.b.x", "a.b.c.d", "ab", "z")] == [
        "rendezvous", "rendezvous", "queue", "queue", "rendezvous", "queue", "queue",
    ]  # fmt: skip


# --- routes ----------------------------------------------------------------------------------


@pytest.mark.req("M13", "M25")
@pytest.mark.parametrize(
    "kind, target",
    [("a", ALICE), ("a.x", ALICE), ("a.b", BOB), ("a.b.x.y", BOB), ("ab", None), ("b", None)],
)
def test_the_longest_matching_prefix_routes(kind, target):
    ledger = Ledger()
    assert ledger.route("a", ALICE) is OK
    assert ledger.route("a.b", BOB) is OK
    assert ledger.history.current.route_for(kind) == (target.did if target else None)


@pytest.mark.req("M13")
def test_while_a_route_is_set_only_its_target_claims():
    story = Story(kind="a.b")
    story.schedule()
    assert story.ledger.route("a", BOB) is OK
    assert story.claim(ALICE) is Verdict.NOT_ROUTED
    assert story.claim(OWNER) is Verdict.NOT_ROUTED
    assert story.claim(BOB) is OK


@pytest.mark.req("M14")
def test_the_last_route_rules_and_one_without_a_target_clears_it():
    story = Story(kind="a.b")
    story.schedule()
    assert story.ledger.route("a.b", BOB) is OK
    assert story.ledger.route("a.b", CAROL) is OK
    assert story.claim(BOB) is Verdict.NOT_ROUTED
    assert story.ledger.route("a.b", None) is OK
    assert story.claim(ALICE) is OK


@pytest.mark.req("M14")
def test_clearing_a_route_uncovers_the_shorter_one():
    ledger = Ledger()
    ledger.route("a", ALICE)
    ledger.route("a.b", BOB)
    ledger.route("a.b", None)
    assert ledger.history.current.route_for("a.b.c") == ALICE.did
    assert ledger.route("z", None) is OK


def test_a_route_change_does_not_end_a_tenure():
    story = Story(kind="a")
    story.schedule()
    story.claim(ALICE)
    assert story.ledger.route("a", BOB) is OK
    assert story.claim(ALICE) is OK
    assert story.complete(ALICE) is OK


@pytest.mark.req("M15")
def test_a_waiting_job_is_offered_by_whoever_is_coordinator_at_that_place():
    story = Story()
    story.schedule(concurrency="gpu")
    assert story.ledger.coordinator(ALICE) is OK
    assert story.offer(OWNER) is Verdict.NOT_COORDINATOR
    assert story.offer(BOB) is Verdict.NOT_COORDINATOR
    assert story.offer(ALICE) is OK


# --- intervals -------------------------------------------------------------------------------


def test_a_record_is_judged_by_the_control_ops_before_it():
    ledger = Ledger()
    ledger.coordinator(ALICE)
    ledger.append("ap.nothing", b"")
    ledger.coordinator(BOB)
    since = [ledger.history.at(seq, T0).since if seq > 1 else 0 for seq in range(1, 8)]
    assert since == [0, 1, 2, 2, 4, 4, 4]
    assert ledger.history.at(0, T0) is None
    assert ledger.history.at(1, T0) is None


def test_records_are_fed_in_order():
    ledger = Ledger()
    opened = opened_record.open_record(PROTOCOL, ledger.mesh, 1, T0, ledger.log[0].subject, b"")
    with pytest.raises(ValueError, match="was applied after"):
        ledger.history.apply(opened)


moves = st.sampled_from(
    ["route", "clear", "coordinator", "rules", "bad rules", "stranger", "stale"]
)


@BRISK
@given(st.lists(moves, max_size=12), st.integers(1, 14))
def test_what_comes_later_never_changes_an_earlier_interval(script, cut):
    ledger = Ledger()
    for at, move in enumerate(script, 1):
        when = {"at": at * 100}
        match move:
            case "route" | "clear":
                ledger.route("a", BOB if move == "route" else None, **when)
            case "coordinator":
                ledger.coordinator(CAROL, **when)
            case "rules" | "bad rules":
                ledger.rules(attempts=at if move == "rules" else 101, how=when)
            case "stranger":
                ledger.coordinator(ALICE, ALICE, **when)
            case "stale":
                ledger.coordinator(ALICE, at=0)
    whole = ledger.history
    early = Reader(ledger.mesh, ledger.log)
    verdicts = [early.judge(record) for record in ledger.log[:cut]]
    assert verdicts == ledger.verdicts[:cut]
    for seq in range(min(cut, len(ledger.log)) + 1):
        assert told(early.history.at(seq, T0)) == told(whole.at(seq, T0))


def told(control):
    """Everything that an interval answers without being asked about anybody."""
    if control is None:
        return None
    return (
        control.since,
        control.owner,
        control.coordinator,
        control.rules,
        control.rise,
        control.owner_hlc,
        control.routes,
        control.quarantined,
    )
