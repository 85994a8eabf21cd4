"""A second model of authority: who may do what, worked out from the log without the core.

The laws must not lean on the code that they watch, so this reads delegations, revocations and
quarantines from accepted records with a few lines of its own: no `core.authority.chain_check`, no
`core.authority.delegations`, no `core.ucan`. It is fed in log order and always answers for the
present place.

It knows the delegations that simulated worlds issue, and no more: policies that speak of the kind.
Where it meets anything else it raises, rather than guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from simulator.checks.plain_record import (
    Claims,
    PlainRecord,
    read_claims,
    signed_part,
    stamp_of,
)

COMMANDS: Final = {
    "job.schedule": "/job/schedule",
    "job.claim": "/job/claim",
    "job.cancel": "/job/cancel",
    "job.evict": "/artifact/write",
}
COMPLETING: Final = "/job/complete"
ANSWERING: Final = "/job/answer"
"""What every other op on a job needs."""
LONGEST_CHAIN: Final = 16


class Grant(Struct, frozen=True):
    """A delegation and its place on the log."""

    seq: int
    claims: Claims


class Call(Struct, frozen=True):
    """Who called a job, under which delegations, and where."""

    author: str = ""
    auth: tuple[str, ...] = ()
    seq: int = 0


class AuthorityModel:
    """The authority of one mesh, as of the newest record."""

    def __init__(self) -> None:
        """Nobody owns anything: before genesis, everything is open."""
        self.owner = self.recovery = self.coordinator = ""
        self.is_open = True
        self.quarantined: dict[str, int] = {}
        """Who is quarantined now, and since which record."""
        self.grants: dict[str, Grant] = {}
        self.revocations = 0
        self.evidence: list[dict[str, Any]] = []
        self.routes: dict[str, str] = {}
        """By kind or prefix of kinds, who alone may claim."""
        self.paused: set[tuple[str | None, str | None, str | None]] = set()
        """What nobody may begin: by kind or prefix of kinds, label, name of the plan."""
        self._shown: dict[str, list[int]] = {}
        self._newest_shown: dict[str, tuple[int, int]] = {}
        self._revoked: dict[str, list[tuple[int, str]]] = {}
        self._to: dict[str, list[str]] = {}

    # --- what happened ----------------------------------------------------------------------

    def move(self, seq: int, fact: PlainRecord) -> None:
        """Take in a control record that was accepted."""
        body = fact.body
        match fact.type:
            case "mesh.genesis":
                self.owner = self.coordinator = body["owner"]
                self.recovery = body["recovery"]
                self.is_open = body["rules"].get("authority") == "open"
            case "mesh.rules":
                self.is_open = body["rules"].get("authority") == "open"
            case "mesh.coordinator":
                self.coordinator = body["node"]
            case "mesh.route":
                self.routes[body["kind"]] = body.get("target") or ""
            case "mesh.pause":
                about = (body.get("kind"), body.get("label"), body.get("plan"))
                self.paused.discard(about)
                if body["is_paused"]:
                    self.paused.add(about)
            case "mesh.recover":
                self.owner = self.coordinator = body["owner"]
                self.recovery = body["recovery"]
            case "mesh.evidence":
                self.quarantined[body["node"]] = seq
                self._shown.setdefault(body["node"], []).append(seq)
                self._newest_shown[body["node"]] = stamp_of(body["first"])
                self.evidence.append(body)
            case "mesh.readmit":
                self.quarantined.pop(body["node"], None)
            case "ucan.delegate":
                self._grant(seq, read_claims(body["token"]))
            case "ucan.revoke":
                self._revoked.setdefault(body["cid"], []).append((seq, fact.author))
                self.revocations += 1
            case _:
                return

    def _grant(self, seq: int, claims: Claims) -> None:
        if claims.cid not in self.grants:
            self.grants[claims.cid] = Grant(seq, claims)
            self._to.setdefault(claims.audience, []).append(claims.cid)

    # --- job ops ----------------------------------------------------------------------------

    def is_shut_out(self, author: str) -> bool:
        """Whether nothing of an author counts."""
        return author in self.quarantined and author != self.owner

    def schedule_fault(
        self, author: str, auth: tuple[str, ...], fact: PlainRecord, *, commit_ms: int
    ) -> str:
        """Why somebody may not submit what this op is about, by these delegations."""
        return self._command_fault(author, auth, COMMANDS["job.schedule"], fact, commit_ms)

    def command_fault(self, fact: PlainRecord, command: str, *, commit_ms: int) -> str:
        """Why the author may not do this here, where only a chain for the command counts."""
        return self._command_fault(fact.author, fact.auth, command, fact, commit_ms)

    def _command_fault(
        self, author: str, auth: tuple[str, ...], command: str, fact: PlainRecord, commit_ms: int
    ) -> str:
        if self.is_shut_out(author):
            return "quarantined"
        if self.is_open or author == self.owner:
            return ""
        times_s = (fact.wall_ms // 1000, commit_ms // 1000)
        return self._chain_fault(author, auth, command, fact.body["kind"], times_s)

    def fault(self, fact: PlainRecord, called: Call, *, commit_ms: int) -> str:
        """Why the author may not write this op on a job here, in one word; empty if it may."""
        author = fact.author
        if author in self.quarantined and author != self.owner:
            return "quarantined"
        if self.is_open or author == self.owner:
            return ""
        if fact.type == "job.offer" and author == self.coordinator:
            return ""
        if fact.type == "job.resolve" or "replica" in fact.body:
            return "" if author == self.coordinator else "not_coordinator"
        if fact.type == "job.schedule" and "derived" in fact.body:
            return "not_coordinator"
        ends = fact.type in {"job.cancel", "job.evict"}
        if ends and author == self.coordinator:
            return ""
        if ends and self._is_callers(fact, called, commit_ms) and not self._is_taken_back(called):
            return ""
        command = COMMANDS.get(fact.type, COMPLETING)
        if fact.body.get("answers") or fact.body.get("answered"):
            command = ANSWERING
        times_s = (fact.wall_ms // 1000, commit_ms // 1000)
        return self._chain_fault(author, fact.auth, command, fact.body["kind"], times_s)

    def _is_callers(self, fact: PlainRecord, called: Call, commit_ms: int) -> bool:
        """Whether an op is by the caller, or by another key of the party that it acts for."""
        if fact.author == called.author:
            return True
        if not fact.auth or not called.auth:
            return False
        times_s = (fact.wall_ms // 1000, commit_ms // 1000)
        kind = fact.body["kind"]
        fault = self._chain_fault(fact.author, fact.auth, "/job/cancel", kind, times_s)
        shown = fault in {"", "command", "policy"} and fact.auth[0] in self.grants
        return shown and self.grants[fact.auth[0]].claims.audience == self.party(called)

    def fault_of_caller(self, fact: PlainRecord, caller: Call, *, commit_ms: int) -> str:
        """Why a job's caller could not call it again here and now; empty if it could."""
        if caller.author in self.quarantined and caller.author != self.owner:
            return "quarantined"
        if self.is_open or caller.author == self.owner:
            return ""
        times_s = (fact.wall_ms // 1000, commit_ms // 1000)
        kind = fact.body["kind"]
        return self._chain_fault(caller.author, caller.auth, "/job/schedule", kind, times_s)

    def party(self, done: Call) -> str:
        """For whom something was done: whoever the owner delegated to, at the top of the chain."""
        if self.is_open or done.author == self.owner or not done.auth:
            return done.author
        return self.grants[done.auth[0]].claims.audience

    def _chain_fault(
        self,
        author: str,
        cids: tuple[str, ...],
        command: str,
        kind: str,
        times_s: tuple[int, ...],
    ) -> str:
        if not 0 < len(cids) <= LONGEST_CHAIN or any(cid not in self.grants for cid in cids):
            return "no_chain"
        chain = [self.grants[cid].claims for cid in cids]
        left = self._handed_down(chain)
        if not left.startswith("/"):
            return left
        if chain[-1].audience != author:
            return "no_chain"
        if any(True for _ in self._revocations(chain)):
            return "revoked"
        if not all(_holds_at(link, at_s) for link in chain for at_s in times_s):
            return "chain_expired"
        if not _lies_within(command, left):
            return "command"
        if not all(_admits(statement, kind) for link in chain for statement in link.policy):
            return "policy"
        return ""

    def _handed_down(self, chain: list[Claims]) -> str:
        """The command that is left at the end of a chain; a word without slash if none is."""
        holder, left = self.owner, "/"
        for at, link in enumerate(chain):
            is_about_owner = link.subject == self.owner
            is_powerline = link.subject is None and at > 0
            if link.issuer != holder or not (is_about_owner or is_powerline):
                return "no_chain"
            holder = link.audience
            if _lies_within(link.command, left):
                left = link.command
            elif not (is_powerline and _lies_within(left, link.command)):
                return "command"
        return left

    def _revocations(self, chain: list[Claims]) -> Iterator[int]:
        """Where links of a chain were revoked by their issuer or by one above it."""
        above: set[str] = set()
        for link in chain:
            above.add(link.issuer)
            yield from (seq for seq, by in self._revoked.get(link.cid, ()) if by in above)

    def is_routed_away(self, kind: str, author: str, auth: tuple[str, ...]) -> bool:
        """Whether somebody else alone may begin a tenure on this kind.

        A machine's key signs no ops: what it passes everything on to stands for it.
        """
        words = kind.split(".")
        prefixes = (".".join(words[:size]) for size in range(len(words), 0, -1))
        target = next((found for one in prefixes if (found := self.routes.get(one))), author)
        at = len(auth)
        while author != target and at > 0:
            at -= 1
            link = self.grants[auth[at]].claims if auth[at] in self.grants else None
            if link is None or link.subject is not None or link.audience != author:
                return True
            author = link.issuer
        return author != target

    def is_paused(self, kind: str, label: str) -> bool:
        """Whether nobody may begin a job of this kind, with this label, of no plan."""
        return any(
            (one is None or f"{kind}.".startswith(f"{one}."))
            and its_label in (None, label)
            and plan is None
            for one, its_label, plan in self.paused
        )

    # --- leases -----------------------------------------------------------------------------

    def has_ended(self, holder: str, auth: tuple[str, ...], since: int) -> bool:
        """Whether what a tenure was begun or renewed under at `since` has been ended after it.

        A revocation of its chain ends it, evidence against its holder does, whoever is readmitted
        later, and so does a recovery: no chain leads from the old owner any more.
        """
        if self.was_shown(holder, since):
            return True
        return not self.is_open and self._is_taken_back(Call(holder, auth, since))

    def was_shown(self, node: str, since: int) -> bool:
        """Whether evidence against a node was accepted after a place on the log."""
        return any(seq > since for seq in self._shown.get(node, ()))

    def _is_taken_back(self, op: Call) -> bool:
        """Whether what an op named where it stands has been revoked since, or has no root now."""
        if not op.auth:
            return op.author != self.owner
        chain = [self.grants[cid].claims for cid in op.auth if cid in self.grants]
        if not self._handed_down(chain).startswith("/"):
            return True
        return any(seq > op.seq for seq in self._revocations(chain))

    # --- control ops ------------------------------------------------------------------------

    def control_fault(
        self, fact: PlainRecord, really_signed: Callable[[str, bytes], bool], *, latest_ms: int
    ) -> str:
        """Why the author may not write this control op here; empty if it may.

        Nothing that is shown may be dated later than `latest_ms`.
        """
        author, body = fact.author, fact.body
        if author in self.quarantined and author != self.owner:
            return "quarantined"
        match fact.type:
            case "mesh.genesis":
                return "genesis" if self.owner else ""
            case "mesh.recover":
                return "" if author == self.recovery else "not_owner"
            case "mesh.pause":
                return "" if author in (self.owner, self.coordinator) else "not_owner"
            case "mesh.seal":
                return "" if author == self.coordinator else "not_coordinator"
            case "mesh.evidence":
                if not self._holds_something(body["node"]):
                    return "already"
                is_dated = stamp_of(body["first"])[0] <= latest_ms
                return "" if is_dated and self._is_proven(body, really_signed) else "proof"
            case "ucan.delegate":
                claims = read_claims(body["token"])
                if author not in {claims.issuer, claims.audience, self.owner}:
                    return "no_chain"
                if claims.mesh not in {"", fact.mesh}:
                    return "mesh"
                return "" if really_signed(claims.issuer, claims.raw) else "signature"
            case "ucan.revoke":
                is_known = body["cid"] in self.grants
                may = author == self.owner or author in self._issuers_above(body["cid"])
                return "" if is_known and may else "no_chain"
            case _:
                return "" if author == self.owner else "not_owner"

    def _is_proven(self, body: dict[str, Any], really_signed: Callable[[str, bytes], bool]) -> bool:
        """Two ops that one node signed with one timestamp, a newer one than was shown before."""
        node = body["node"]
        shown = [body[name].encode() for name in ("first", "second")]
        pair = [one.partition(b"\n")[0] for one in shown]
        first, second = (stamp_of(body[name]) for name in ("first", "second"))
        return (
            node != self.owner
            and pair[0] != pair[1]
            and self._newest_shown.get(node, (-1, 0)) < first == second
            and all(really_signed(node, signed_part(one)) for one in shown)
        )

    def _holds_something(self, did: str) -> bool:
        """Whether anything of a key could count: a quarantine would change something."""
        above = {did, *(i for cid in self._to.get(did, ()) for i in self._issuers_above(cid))}
        return self.is_open or did == self.coordinator or self.owner in above

    def _issuers_above(self, cid: str) -> set[str]:
        """Its issuer, whoever delegated anything to that one, and so on upwards."""
        grant = self.grants.get(cid)
        found: set[str] = set()
        unseen = [grant.claims.issuer] if grant else []
        while unseen:
            issuer = unseen.pop()
            if issuer not in found:
                found.add(issuer)
                unseen += [self.grants[one].claims.issuer for one in self._to.get(issuer, ())]
        return found

    # --- what could be done -----------------------------------------------------------------

    def live_grants_to(self, did: str, now_ms: int) -> list[Claims]:
        """Delegations to somebody that hold now and that their issuer did not take back."""
        given = [self.grants[cid].claims for cid in self._to.get(did, ())]
        return [link for link in given if self._is_live(link, now_ms // 1000)]

    def _is_live(self, link: Claims, now_s: int) -> bool:
        takers = {by for _, by in self._revoked.get(link.cid, ())}
        return link.issuer not in takers and _holds_at(link, now_s)

    def may(self, did: str, command: str, kind: str, now_ms: int) -> bool:
        """Whether there is any chain under which somebody could do this now."""
        if did in self.quarantined and did != self.owner:
            return False
        if self.is_open or did == self.owner:
            return True
        chains = self._chains_to((did,), (), now_ms // 1000)
        times_s = (now_ms // 1000,)
        return any(not self._chain_fault(did, cids, command, kind, times_s) for cids in chains)

    def _chains_to(
        self, holders: tuple[str, ...], below: tuple[str, ...], now_s: int
    ) -> Iterator[tuple[str, ...]]:
        """Chains that end in `below`; nobody occurs twice, since a detour only narrows."""
        if len(below) >= LONGEST_CHAIN:
            return
        for cid in self._to.get(holders[0], ()):
            link = self.grants[cid].claims
            if link.issuer in holders or not self._is_live(link, now_s):
                continue
            if link.issuer == self.owner:
                yield (cid, *below)
            else:
                yield from self._chains_to((link.issuer, *holders), (cid, *below), now_s)


def _holds_at(link: Claims, at_s: int) -> bool:
    is_begun = link.begins_s is None or link.begins_s <= at_s
    return is_begun and (link.ends_s is None or at_s <= link.ends_s)


def _lies_within(command: str, other: str) -> bool:
    return (command + "/").startswith(other.rstrip("/") + "/")


def _admits(statement: Any, kind: str) -> bool:
    match statement:
        case ["==", ".kind", str() as wanted]:
            return kind == wanted
        case ["like", ".kind", str() as glob]:
            before, _, after = glob.partition("*")
            return kind.startswith(before) and kind.endswith(after)
        case ["or", list() as parts]:
            return any(_admits(part, kind) for part in parts)
    raise ValueError(f"no simulated world issues a policy like {statement!r}")
