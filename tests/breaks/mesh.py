"""How the features of rows M1 to M30 are taken out: mesh coordination."""

from typing import Any

from tests.breaks.replacement import (
    Break,
    around,
    becomes,
    calls,
    cells_like,
    does_nothing,
    gives,
    in_cells,
    with_,
)

TABLE = "antiphon.core.families.jobs.table"
MESH = "antiphon.core.families.mesh.table"
DELIVERIES = "antiphon.runtime.worker.job_deliveries"
CLAIMS = "antiphon.runtime.worker.job_claims"
HELD = ("claimed", "running")
ENDED = ("succeeded", "failed", "aborted")


def verdict(name: str) -> Any:
    """A function that gives a verdict, which is looked up when it is called."""

    def call(*_: Any, **__: Any) -> Any:
        from antiphon.core.record.verdict import Verdict

        return Verdict[name]

    return call


def changed(struct: Any, **fields: Any) -> Any:
    """A struct with other fields."""
    from msgspec.structs import replace

    return replace(struct, **fields)


def names_nobody(old: Any, state: Any, op: Any, at: Any) -> Any:
    """A designation that leaves the coordinator who it is."""
    if op.type_name() == "mesh.coordinator":
        op = changed(op, body=changed(op.body, node=at.control.coordinator))
    return old(state, op, at)


def names_once(old: Any, state: Any, op: Any, at: Any) -> Any:
    """The first designation counts, later ones do not."""
    is_named = at.control.coordinator != at.control.owner
    return (names_nobody if is_named else lambda *given: old(*given[1:]))(old, state, op, at)


def stays_routed(old: Any, state: Any, op: Any, at: Any) -> Any:
    """A route without a target changes nothing."""
    if op.type_name() == "mesh.route" and op.body.target is None:
        op = changed(op, body=changed(op.body, target=at.control.routes.get(op.body.kind)))
    return old(state, op, at)


def already_late(old: Any, job: Any, op: Any, at: Any) -> Any:
    """A lease that ends one millisecond before its deadline is past."""
    return old(changed(job, deadline_ms=job.deadline_ms - 1), op, at)


def never_late(old: Any, job: Any, op: Any, at: Any) -> Any:
    """A lease that can be renewed when it is over."""
    return old(changed(job, deadline_ms=max(job.deadline_ms, op.hlc[0], at.commit_ms)), op, at)


BREAKS = {
    "M1": (
        Break(
            "antiphon.runtime.node.sealer:Sealer.is_due",
            gives(False),
            "a node that is owner and worker seals nothing as coordinator",
        ),
        Break(
            "antiphon.core.authority.scope:kinds_of_chain",
            gives((">",)),
            "a peer reads kinds that its delegation does not cover",
        ),
    ),
    "M2": (Break(f"{MESH}:entitled", gives(True), "anyone writes the owner's ops"),),
    "M3": (Break(f"{MESH}:step", around(names_nobody), "designating a coordinator does nothing"),),
    "M4": (
        Break(
            f"{TABLE}:TRANSITIONS",
            cells_like("JobYield", *HELD, like="pending"),
            "a job cannot be given back",
        ),
        Break(
            f"{TABLE}:TRANSITIONS",
            cells_like("JobExpire", *HELD, like="pending"),
            "a lease cannot be expired",
        ),
    ),
    "M5": (Break(f"{TABLE}:_holder_fault", gives(None), "anyone ends another's tenure"),),
    "M6": (
        Break(
            f"{TABLE}:TRANSITIONS",
            cells_like("JobClaim", *ENDED, like="pending"),
            "a finished job is claimed again",
        ),
    ),
    "M7": (
        Break(
            f"{TABLE}:TRANSITIONS",
            in_cells("JobExpire", *HELD, change=around(already_late)),
            "a lease is over at its deadline, not past it",
        ),
    ),
    "M8": (Break(f"{TABLE}:_repeated_expiry", gives(None), "a second expiry is an error"),),
    "M9": (
        Break(
            f"{TABLE}:TRANSITIONS",
            in_cells("JobClaim", *HELD, change=around(never_late)),
            "a lease is renewed after its end",
        ),
    ),
    "M10": (
        Break(
            f"{TABLE}:TRANSITIONS",
            cells_like("JobClaim", *HELD, like="pending"),
            "a second claim takes the job away",
        ),
    ),
    "M11": (
        Break(
            f"{MESH}:_quarantined",
            calls(verdict("ALREADY")),
            "evidence against an author who signed twice has no effect",
        ),
        Break(
            "antiphon.core.reducer:_order_fault",
            gives(None),
            "two ops of one author with one timestamp are both accepted",
        ),
    ),
    "M12": (Break(f"{CLAIMS}:claim_delay_s", gives(0.0), "a refused claimer does not wait"),),
    "M13": (
        Break(
            "antiphon.core.authority.control:Control.route_for",
            gives(None),
            "routes are ignored",
        ),
        Break(
            "antiphon.core.policy.selection:is_for_others",
            gives(False),
            "workers ask for jobs that are routed to others",
        ),
    ),
    "M14": (
        Break(f"{MESH}:last", gives(None), "an older route replaces a newer one"),
        Break(f"{MESH}:step", around(stays_routed), "a route cannot be lifted"),
    ),
    "M15": (
        Break("antiphon.core.families.seals.table:entitled", gives(True), "anyone writes seals"),
        Break(
            "antiphon.runtime.coordinator.offer_audit:OfferAudit._difference",
            gives(""),
            "nobody notices an offer that does not follow from the log",
        ),
    ),
    "M16": (Break(f"{MESH}:step", around(names_once), "a coordinator is not named again"),),
    "M17": (
        Break(
            "antiphon.runtime.node.coordinator_watch:CoordinatorWatch._settle",
            does_nothing,
            "nobody hears that the coordinator is silent",
        ),
    ),
    "M18": (
        Break("antiphon.core.read_set:fault", gives(None), "an op may name what is not there"),
    ),
    "M19": (
        Break(
            "antiphon.core.derivations.offer_derivation:_cancel",
            gives(None),
            "a job that waits for what was never submitted is not ended",
        ),
        Break(
            "antiphon.sdk.graphs.graph_file:_Reader._refuse",
            does_nothing,
            "a file with a loop is submitted",
        ),
    ),
    "M20": (
        Break("antiphon.runtime.node.roster:Roster.overdue", gives([]), "nothing is overdue"),
        Break("antiphon.runtime.node.roster:Roster.state_of", gives(None), "no job has a state"),
    ),
    "M21": (
        Break(
            "antiphon.runtime.worker.tenure:Tenure._is_renewal_due",
            gives(False),
            "leases are not renewed",
        ),
        Break(
            "antiphon.runtime.worker.worker:Worker._free",
            gives(1_000),
            "a worker claims more than it has slots for",
        ),
    ),
    "M22": (
        Break(
            "antiphon.runtime.worker.battery_watch:BatteryWatch.look",
            does_nothing,
            "a low battery is ignored",
        ),
        Break(
            "antiphon.core.policy.attempt_end:Fault.is_over_for",
            gives(True),
            "an error ends the job though attempts are left",
        ),
        Break(f"{DELIVERIES}:JobDeliveries._give_back", does_nothing, "nothing is given back"),
    ),
    "M23": (
        Break(
            f"{CLAIMS}:JobClaims.stay_away",
            calls(lambda _self, delivery, *_: delivery.nak()),
            "a worker tries a claimed job again at once",
        ),
    ),
    "M24": (Break(f"{CLAIMS}:claim_delay_s", with_(chance=0.0), "workers come back together"),),
    "M25": (
        Break("antiphon.core.record.subjects:is_kind", gives(True), "any text is a kind"),
        Break(
            "antiphon.core.authority.control:Control.route_for",
            calls(lambda self, kind: self.routes.get(kind)),
            "a route holds for one kind and not for those below it",
        ),
    ),
    "M26": (
        Break(
            "antiphon.runtime.worker.runs.model_calls:Account.on",
            calls(lambda _, end: end),
            "a completion names no snapshot",
        ),
    ),
    "M27": (
        Break(
            "antiphon.core.families.jobs.completion_proof:are_accounted_for",
            gives(True),
            "an audited completion says what it likes",
        ),
        Break(
            "antiphon.core.families.jobs.audited_calls:is_in_force",
            gives(False),
            "audit is never in force",
        ),
    ),
    "M28": (
        Break(
            "antiphon.core.inference.call_reader:parts_of",
            gives(None),
            "no model call is understood",
        ),
    ),
    "M29": (
        Break(
            "antiphon.core.authority.job_rights:READ_BY",
            becomes(("/job/read",)),
            "who may claim a kind cannot read it",
        ),
        Break(
            "antiphon.core.authority.scope:kinds_of_chain",
            gives((">",)),
            "who may claim a kind reads all kinds",
        ),
        Break(
            "antiphon.runtime.gate.blob_rights:path_to_author",
            calls(lambda _control, op, _seq, node: (node,) if op.author == node else ()),
            "a member reads any content that another key of its own names",
        ),
    ),
    "M30": (
        Break("antiphon.runtime.node.roster:Roster.claimable", gives([]), "nothing is claimable"),
    ),
}
