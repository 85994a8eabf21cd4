"""The laws' own reading of authority: what it admits, and that each of its laws can fail."""

import json

import pytest

from antiphon.core.record.verdict import Verdict
from simulator.checks.authority_model import AuthorityModel
from tests.core.ucan.principals import ALICE, BOB, CAROL, DAN, ERIN, MALLORY
from tests.simulation.histories import AT_MS, JOB, KIND, LEASE_MS, MESH, History

OWNER, RECOVERY, CALLER, WORKER = ALICE, ERIN, BOB, CAROL
BUILD = [["like", ".kind", "build.*"]]
RENDER = [["or", [["like", ".kind", "render.*"], ["==", ".kind", "doomed"]]]]


def founded():
    """A chained mesh on which a job is called."""
    history = History()
    history.found(OWNER, RECOVERY)
    calling = history.delegate(OWNER, CALLER, about=OWNER, cmd="/job/schedule")
    history.add("schedule", 10, by=CALLER.did, auth=(calling,))
    return history


def held(**terms):
    """And held by a worker under one delegation."""
    history = founded()
    mine = history.delegate(OWNER, WORKER, about=OWNER, **terms)
    fence = history.add("claim", 20, by=WORKER.did, auth=(mine,), lease_ms=LEASE_MS)
    return history, mine, fence


def test_a_good_history_breaks_nothing():
    history, mine, fence = held(pol=BUILD, begins=0, ends=1, mesh=MESH)
    history.add("complete", 1_999, by=WORKER.did, auth=(mine,), fence=fence, status="succeeded")
    assert not history.broken


def test_chains_of_several_links_and_powerlines_are_followed():
    history = founded()
    top = history.delegate(OWNER, DAN, about=OWNER, cmd="/job")
    middle = history.delegate(DAN, BOB, about=OWNER, cmd="/job/claim", pol=BUILD)
    leaf = history.delegate(BOB, WORKER, about=None, cmd="/")
    chain = (top, middle, leaf)
    fence = history.add("claim", 20, by=WORKER.did, auth=chain, lease_ms=LEASE_MS)
    refused = {"auth": chain, "fence": fence, "status": "failed", "verdict": Verdict.COMMAND}
    history.add("complete", 30, by=WORKER.did, **refused)
    assert not history.broken


def one_link(giver=OWNER, to=WORKER, **terms):
    """A chain of one link."""
    return lambda history: (history.delegate(giver, to, **{"about": OWNER} | terms),)


def two_links(cmd, child_cmd):
    """A chain through a middle-man."""
    return lambda history: (
        history.delegate(OWNER, DAN, about=OWNER, cmd=cmd),
        history.delegate(DAN, WORKER, about=OWNER, cmd=child_cmd),
    )


def revoked(made, at):
    """A chain of which one link was taken back."""

    def chain(history):
        cids = made(history)
        history.control("ucan.revoke", 2, OWNER.did, cid=cids[at])
        return cids

    return chain


FAULTS = {
    "nothing": ("no_chain", lambda _: ()),
    "unknown": ("no_chain", lambda _: ("b" + "a" * 58,)),
    "another's": ("no_chain", one_link(to=DAN)),
    "rootless": ("no_chain", one_link(WORKER)),
    "about another": ("no_chain", one_link(about=WORKER)),
    "a powerline alone": ("no_chain", one_link(about=None)),
    "another command": ("command", one_link(cmd="/job/complete")),
    "another kind": ("policy", one_link(pol=RENDER)),
    "widened": ("command", two_links("/job/claim", "/job")),
    "revoked": ("revoked", revoked(one_link(), 0)),
    "revoked above": ("revoked", revoked(two_links("/job", "/job"), 0)),
    "over": ("chain_expired", one_link(ends=0)),
    "not begun": ("chain_expired", one_link(begins=30)),
}


@pytest.mark.parametrize("what", FAULTS)
def test_an_op_that_passes_without_authority_or_is_refused_for_another_reason(what):
    word, made = FAULTS[what]
    for verdict, is_right in (
        (Verdict.OK, False),
        (Verdict.HELD, False),
        (Verdict(word), True),
        (Verdict.QUARANTINED, False),
        (Verdict.DRIFT, True),
    ):
        history = founded()
        chain = made(history)
        terms = {"auth": chain, "lease_ms": LEASE_MS, "verdict": verdict}
        history.add("claim", 20_000, by=WORKER.did, **terms)
        assert ("authorised" in history.laws_broken) is not is_right, verdict


@pytest.mark.parametrize(
    "wall_ms, commit, is_allowed",
    [
        (2_000, 2_000, True),
        (5_999, 5_999, True),
        (6_000, 5_999, False),
        (5_999, 6_000, False),
        (1_999, 2_000, False),
        (2_000, 1_999, False),
    ],
)
def test_times_are_held_against_both_clocks_to_the_second(wall_ms, commit, is_allowed):
    history = founded()
    mine = history.delegate(OWNER, WORKER, about=OWNER, begins=2, ends=5)
    times = {"wall_ms": AT_MS + wall_ms, "commit": AT_MS + commit}
    history.add("claim", 0, by=WORKER.did, auth=(mine,), lease_ms=LEASE_MS, **times)
    assert history.laws_broken == (set() if is_allowed else {"authorised"})


def test_an_op_that_is_refused_although_it_is_allowed():
    for verdict in (Verdict.NO_CHAIN, Verdict.REVOKED, Verdict.POLICY, Verdict.QUARANTINED):
        history = founded()
        mine = history.delegate(OWNER, WORKER, about=OWNER)
        history.add("claim", 20, by=WORKER.did, auth=(mine,), lease_ms=9, verdict=verdict)
        assert history.laws_broken == {"authorised"}


def test_owner_coordinator_and_caller_need_no_chain_for_what_is_theirs():
    history = founded()
    history.control("mesh.coordinator", 11, OWNER.did, node=DAN.did)
    history.add("offer", 12, by=DAN.did)
    history.add("offer", 13, by=WORKER.did, verdict=Verdict.NO_CHAIN)
    history.add("cancel", 14, by=WORKER.did, verdict=Verdict.NO_CHAIN)
    history.add("claim", 15, by=OWNER.did, lease_ms=LEASE_MS)
    history.add("cancel", 16, by=CALLER.did)
    assert not history.broken


def cut(how):
    """A tenure whose authority has ended, in one of the ways in which it does."""
    history, mine, fence = held()
    history.delegate(OWNER, DAN, about=OWNER)
    again = history.delegate(OWNER, WORKER, about=OWNER)
    match how:
        case "revocation":
            history.control("ucan.revoke", 30, OWNER.did, cid=mine)
        case "quarantine":
            show(history, WORKER)
            history.control("mesh.readmit", 31, OWNER.did, node=WORKER.did)
        case "recovery":
            history.control("mesh.recover", 30, RECOVERY.did, owner=DAN.did, recovery=ERIN.did)
            again = history.delegate(DAN, WORKER, about=DAN)
    return history, again, fence


@pytest.mark.parametrize("how", ["revocation", "quarantine", "recovery"])
def test_a_lease_that_outlives_its_authority(how):
    history, again, fence = cut(how)
    history.add("complete", 40, by=WORKER.did, auth=(again,), fence=fence, status="succeeded")
    assert history.laws_broken == {"leases_end", "one_result"}
    renewed, again, fence = cut(how)
    renewed.add("claim", 40, by=WORKER.did, auth=(again,), fence=fence, lease_ms=LEASE_MS)
    assert "leases_end" in renewed.laws_broken


@pytest.mark.parametrize("how", ["revocation", "quarantine", "recovery"])
def test_a_job_whose_holder_lost_its_authority_is_free(how):
    history, again, fence = cut(how)
    late = {"fence": fence, "status": "failed", "verdict": Verdict.FENCE}
    history.add("complete", 39, by=WORKER.did, auth=(again,), **late)
    history.add("claim", 40, by=WORKER.did, auth=(again,), lease_ms=LEASE_MS)
    assert not history.broken
    refused, again, _ = cut(how)
    refused.add("claim", 40, by=WORKER.did, auth=(again,), lease_ms=9, verdict=Verdict.HELD)
    assert refused.laws_broken == {"truly_held"}


def test_a_lease_survives_what_does_not_concern_it():
    history, mine, fence = held()
    other = history.delegate(OWNER, WORKER, about=OWNER)
    history.delegate(MALLORY, OWNER, about=MALLORY)
    history.control("ucan.revoke", 30, OWNER.did, cid=other)
    # In the book she is above the owner now; in the worker's chain she is not.
    history.control("ucan.revoke", 31, MALLORY.did, cid=mine)
    history.add("complete", 40, by=WORKER.did, auth=(mine,), fence=fence, status="succeeded")
    assert not history.broken


def test_a_claim_on_what_is_routed_to_somebody_else():
    def claimed(target, prefix="build"):
        history = founded()
        top = history.delegate(OWNER, DAN, about=OWNER)
        passed_on = history.delegate(DAN, WORKER, about=None, cmd="/")
        history.control("mesh.route", 11, OWNER.did, kind="build.slow", target=MALLORY.did)
        if target is not None:
            history.control("mesh.route", 12, OWNER.did, kind="build", target=MALLORY.did)
            history.control("mesh.route", 13, OWNER.did, kind=prefix, target=target.did)
        chain = (top, passed_on)
        history.add("claim", 20, by=WORKER.did, auth=chain, lease_ms=LEASE_MS)
        return history.laws_broken

    assert claimed(None) == claimed(WORKER) == set()
    assert claimed(DAN) == claimed(DAN, KIND) == set(), "the machine, which passed it on"
    assert claimed(OWNER) == claimed(MALLORY, KIND) == {"routed"}


def test_a_claim_on_what_is_paused_and_a_refusal_of_what_is_not():
    def claimed(verdict, *pauses):
        history = founded()
        chain = (history.delegate(OWNER, WORKER, about=OWNER),)
        for at, (kind, is_paused) in enumerate(pauses):
            how = {} if kind is None else {"kind": kind}
            history.control("mesh.pause", 11 + at, OWNER.did, is_paused=is_paused, **how)
        how = {"by": WORKER.did, "auth": chain, "lease_ms": LEASE_MS}
        history.add("claim", 20, verdict=verdict, **how)
        return history.laws_broken

    ok, paused, broken = Verdict.OK, Verdict.PAUSED, {"not_while_paused"}
    assert claimed(ok) == claimed(ok, ("other", True)) == set()
    assert claimed(ok, (KIND, True), (KIND, False)) == set()
    assert claimed(paused, (KIND, True)) == claimed(paused, (None, True)) == set()
    assert claimed(ok, (KIND, True)) == claimed(ok, (None, True)) == broken
    assert claimed(paused) == claimed(paused, (KIND, True), (KIND, False)) == broken


def test_a_pause_by_somebody_else_than_owner_and_coordinator():
    def written(by, verdict):
        history = founded()
        history.control("mesh.coordinator", 11, OWNER.did, node=DAN.did)
        history.control("mesh.pause", 12, by.did, verdict, is_paused=True)
        return history.laws_broken

    assert written(OWNER, Verdict.OK) == written(DAN, Verdict.OK) == set()
    assert written(WORKER, Verdict.NOT_OWNER) == set()
    assert written(WORKER, Verdict.OK) == {"by_right"}
    assert written(DAN, Verdict.NOT_OWNER) == {"by_right"}


# --- control ops -----------------------------------------------------------------------------


def shown(history, node, *, at=(5, 0), signed=True):
    """What an op with this timestamp looks like as evidence."""
    texts = []
    for number in range(2):
        op = {"author": node.did, "hlc": list(at), "body": {"n": history.grants * 2 + number}}
        texts.append(json.dumps(op))
        if signed:
            history.ledger.signed.setdefault(node.did, set()).add(texts[-1].encode())
    return {"node": node.did, "first": texts[0] + "\n{}", "second": texts[1] + "\n{}"}


def show(history, node, *, by=DAN, verdict=Verdict.OK, **how):
    history.control("mesh.evidence", 30, by.did, verdict, **shown(history, node, **how))


def not_owner(history, verdict):
    history.control("mesh.route", 30, WORKER.did, verdict, kind=KIND, target=WORKER.did)


def wrong_recovery(history, verdict):
    to = MALLORY.did
    history.control("mesh.recover", 30, OWNER.did, verdict, owner=to, recovery=to)


def not_above(history, verdict):
    mine = history.delegate(OWNER, DAN, about=OWNER)
    history.control("ucan.revoke", 30, DAN.did, verdict, cid=mine)


def not_concerned(history, verdict):
    history.delegate(OWNER, DAN, about=OWNER, by=MALLORY, verdict=verdict)


def unproven(history, verdict):
    history.delegate(OWNER, WORKER, about=OWNER)
    show(history, WORKER, verdict=verdict, signed=False)


def against_the_owner(history, verdict):
    show(history, OWNER, verdict=verdict)


def quarantined(history, verdict):
    history.delegate(OWNER, WORKER, about=OWNER)
    history.delegate(OWNER, DAN, about=OWNER)
    show(history, OWNER, verdict=Verdict.PROOF)
    show(history, WORKER)
    show(history, DAN, by=WORKER, verdict=verdict)


REFUSED = {
    not_owner: Verdict.NOT_OWNER,
    wrong_recovery: Verdict.NOT_OWNER,
    not_above: Verdict.NO_CHAIN,
    not_concerned: Verdict.NO_CHAIN,
    unproven: Verdict.PROOF,
    against_the_owner: Verdict.PROOF,
    quarantined: Verdict.QUARANTINED,
}


@pytest.mark.parametrize("story", REFUSED, ids=lambda story: story.__name__)
def test_a_control_op_by_the_wrong_hand(story):
    for verdict in (Verdict.OK, REFUSED[story]):
        history = founded()
        story(history, verdict)
        assert history.laws_broken == ({"by_right"} if verdict is Verdict.OK else set())


def test_a_control_op_that_is_refused_to_those_whose_it_is():
    history = founded()
    history.control("mesh.route", 30, OWNER.did, Verdict.NOT_OWNER, kind=KIND)
    assert history.laws_broken == {"by_right"}


def test_a_delegation_that_its_issuer_never_signed_or_that_is_for_another_mesh():
    for terms in ({"signed_by": MALLORY}, {"mesh": "anothermeshaaaaa"}):
        history = founded()
        history.delegate(OWNER, MALLORY, about=OWNER, by=MALLORY, **terms)
        assert history.laws_broken == {"by_right"}


def test_evidence_that_was_shown_before_counts_once():
    history = founded()
    history.delegate(OWNER, WORKER, about=OWNER)
    show(history, WORKER, at=(5, 0))
    history.control("mesh.readmit", 31, OWNER.did, node=WORKER.did)
    show(history, WORKER, at=(6, 0))
    assert not history.broken
    history.control("mesh.readmit", 32, OWNER.did, node=WORKER.did)
    show(history, WORKER, at=(6, 0))
    assert history.laws_broken == {"by_right"}


def test_evidence_against_a_key_that_holds_nothing_or_dated_ahead():
    history = founded()
    history.control("mesh.evidence", 30, DAN.did, Verdict.OK, **shown(history, MALLORY))
    assert history.laws_broken == {"by_right"}
    history = founded()
    history.delegate(OWNER, WORKER, about=OWNER)
    show(history, WORKER, at=(2**48 - 1, 0))
    assert history.laws_broken == {"by_right"}


def test_a_caller_cancels_until_its_chain_is_taken_back():
    for verdict in (Verdict.OK, Verdict.NO_CHAIN):
        history = founded()
        (calling,) = history.ledger.lane((KIND, JOB)).called.auth
        history.control("ucan.revoke", 13, OWNER.did, cid=calling)
        history.add("cancel", 14, by=CALLER.did, verdict=verdict)
        assert history.laws_broken == ({"authorised"} if verdict is Verdict.OK else set())


# --- what could be done ----------------------------------------------------------------------


def test_somebody_may_claim_as_long_as_any_way_leads_from_the_owner():
    history = founded()
    authority_model = history.ledger.authority_model

    def may(kind=KIND, at_ms=0, who=WORKER):
        return authority_model.may(who.did, "/job/claim", kind, AT_MS + at_ms)

    assert may(who=OWNER)
    assert not may()
    top = history.delegate(OWNER, DAN, about=OWNER, cmd="/job", ends=100)
    history.delegate(DAN, WORKER, about=OWNER, cmd="/job", pol=BUILD)
    history.delegate(WORKER, DAN, about=OWNER)  # a circle leads nowhere
    assert may()
    assert not may("render.slow")
    assert not may(at_ms=101_000)
    show(history, WORKER)
    assert not may()
    history.control("mesh.readmit", 31, OWNER.did, node=WORKER.did)
    assert may()
    history.control("ucan.revoke", 32, OWNER.did, cid=top)
    assert not may()
    history.delegate(OWNER, DAN, about=OWNER)
    assert may(at_ms=101_000)


def test_what_it_does_not_know_it_does_not_guess():
    history = founded()
    odd = history.delegate(OWNER, WORKER, about=OWNER, pol=[["!=", ".kind", "x"]])
    with pytest.raises(ValueError, match="policy"):
        history.add("claim", 20, by=WORKER.did, auth=(odd,), lease_ms=LEASE_MS)


def test_before_its_genesis_everything_is_open():
    assert AuthorityModel().may(WORKER.did, "/job/claim", KIND, AT_MS)
