"""The plan of grants: who is granted what, by whom and until when, and what is revoked.

On a chained mesh every machine needs delegations. They come from the owner, or from one of two
middle-men whom the owner trusts; they cover everything or a kind or two, some end during the run
and some begin later, some are wider than what their issuer has. What ends is granted again after a
while. The owner is read off the log: recovery may change it.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET

from antiphon.core.ucan import Payload, Policy
from simulator.actors.machines import FullMachine, Machine, WorkerMachine
from simulator.actors.owner import Scribe
from simulator.actors.workload import KINDS, SubmitterMachine
from simulator.checks.authority_model import AuthorityModel
from simulator.cluster import Cluster
from simulator.hostile.hostile_member import HostileMember, two_faces

HOUSED: Final = 0.5
"""Workers whose machine has a key of its own and passes on to each process's."""
SHORT: Final = 0.33
LATER: Final = 0.12
"""Grants that end during the run, and grants that begin later."""
FROM_NOW: Final = 0.5
"""Of the others, those that say that they begin now."""
SHORT_S: Final = (20.0, 400.0)
HOSTILE_S: Final = (20.0, 200.0)
"""How long they last; those of the hostile member are all of them short."""
LATER_S: Final = (3.0, 60.0)
GAP_S: Final = (-8.0, 40.0)
"""How long after the end of a grant the next one comes; before it, if the owner is careful."""
WIDENED: Final = 0.15
BOUND: Final = 0.5
"""Grants that name the mesh that they are for."""
BROUGHT_BY_OWNER: Final = 0.2
ALL_AT_ONCE: Final = 0.7
"""Revocations that take everything from somebody; the others, one delegation."""
SOON_S: Final = (1.0, 9.0)
LATE_S: Final = (10.0, 120.0)
SOON: Final = 0.4
FOR_GOOD: Final = 0.15
"""After a revocation: when new grants come, and of workers, how many never do."""
READMITTED_EVERY_S: Final = 30.0
"""In the end, how often those are readmitted of whom something was shown late."""
NONCE_BYTES: Final = 12

Rights = list[tuple[str, tuple[str, ...]]]
"""Commands, and the kinds for each; no kinds are all kinds."""
EVERY_KIND: Final[tuple[str, ...]] = ()


class GrantPlan:
    """Grants, revocations, quarantines, and the end of an owner."""

    def __init__(  # noqa: PLR0913 - everybody who holds, gives or steals a right
        self,
        cluster: Cluster,
        chance: random.Random,
        *,
        is_chained: bool,
        scribes: list[Scribe],
        brokers: list[Scribe],
        machines: list[Machine],
        hostile_member: HostileMember,
    ) -> None:
        """`scribes` are all who can become owner, `machines` all who need grants."""
        self.cluster = cluster
        self.is_chained = is_chained
        self._chance = chance
        self._scribes = scribes
        self._brokers = brokers
        self._machines = machines
        self._hostile_member = hostile_member
        self._needs = sorted({command for one in machines for command in one.needs})
        self._heir = ""
        self._forbidden = ""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._context = contextvars.copy_context()

    @property
    def authority_model(self) -> AuthorityModel:
        """What the log says of all this."""
        return self.cluster.referee.ledger.authority_model

    @property
    def owner(self) -> Scribe:
        """Whose mesh it is now."""
        return next(one for one in self._scribes if one.keyring.did == self.authority_model.owner)

    @property
    def brokers(self) -> list[Scribe]:
        """Those between the owner and the machines."""
        return [one for one in self._brokers if one is not self.owner]

    # --- granting ---------------------------------------------------------------------------

    def begin(self) -> None:
        """The first grants of a mesh."""
        if not self.is_chained:
            return
        workers = [one for one in self._machines if isinstance(one, WorkerMachine)]
        for worker in workers:
            if self._chance.random() < HOUSED:
                worker.settle()
        for broker in self._brokers:
            self.endow(broker, is_lasting=True)
        for machine in (*self._machines, self._hostile_member):
            self.endow(machine, is_lasting=machine is workers[0] if workers else False)

    def endow(self, machine: Machine, *, is_lasting: bool = False) -> None:
        """Grant somebody what it needs, or less, or for a while; and again when that has ended."""
        if not self.is_chained or machine is self.owner:
            return
        self._drop(machine.name)
        giver = self._giver(machine)
        now_s, ends = self._now_s(), list[int]()
        for command, kinds in self._rights_for(machine):
            begins_s, ends_s = (None, None) if is_lasting else self._term(machine, now_s)
            self.give(giver, machine.holder, command, kinds, begins_s, ends_s)
            ends += [] if ends_s is None else [ends_s]
        if self.brokers and self._chance.random() < WIDENED:
            self.give(self._chance.choice(self.brokers), machine.holder, "/", EVERY_KIND)
        if ends:
            gap_s = self._chance.uniform(*GAP_S)
            self._after(machine.name, min(ends) - now_s + gap_s, partial(self.endow, machine))

    def admit(self, machine: Machine) -> None:
        """A machine has come back as a stranger: after a while somebody notices."""
        if machine.holder == machine.keyring.did:
            self._after(machine.name, self._chance.uniform(0.2, 20.0), partial(self.endow, machine))

    def _giver(self, machine: Machine) -> Scribe:
        owner, brokers = self.owner, self.brokers
        if machine in self._brokers:
            above = self._brokers[: self._brokers.index(machine)]
            return above[0] if above and above[0] in brokers else owner
        return self._chance.choice((owner, owner, *brokers))

    def _rights_for(self, machine: Machine) -> Rights:
        rights = self._rights_in_any_world(machine)
        if not self._forbidden or not isinstance(machine, WorkerMachine):
            return rights
        rest = tuple(kind for kind in KINDS if kind != self._forbidden)
        return [
            (command, tuple(kind for kind in kinds if kind in rest) or rest)
            for command, kinds in rights
        ]

    def _rights_in_any_world(self, machine: Machine) -> Rights:
        draw = self._chance.random()
        some = tuple(sorted(self._chance.sample(KINDS, self._chance.randint(1, 2))))
        if machine.needs:
            return [(command, EVERY_KIND) for command in machine.needs]
        if isinstance(machine, FullMachine):
            return [("/job" if draw < 0.5 else "/job/complete", EVERY_KIND)]
        if isinstance(machine, SubmitterMachine):
            if draw < 0.2:
                return [("/job", EVERY_KIND)]
            # Who submits can read what it waits for; a few cannot.
            read = EVERY_KIND if draw < 0.9 else some
            return [("/job/schedule", EVERY_KIND), ("/job/read", read)]
        if isinstance(machine, Scribe):
            return [(command, EVERY_KIND) for command in ("/job", *self._needs)]
        if draw < 0.45 or (isinstance(machine, HostileMember) and draw < 0.6):
            return [("/job", EVERY_KIND)]
        if draw < 0.65 or isinstance(machine, HostileMember):
            return [("/job", some)]
        if draw < 0.95:
            kinds = EVERY_KIND if draw < 0.8 else some
            return [("/job/claim", kinds), ("/job/complete", kinds)]
        return [("/job/claim", EVERY_KIND)]

    def _term(self, machine: Machine, now_s: int) -> tuple[int | None, int | None]:
        draw, span_s = self._chance.random(), SHORT_S
        if machine is self._hostile_member:
            draw, span_s = draw * SHORT, HOSTILE_S
        short_s, later_s = self._chance.uniform(*span_s), self._chance.uniform(*LATER_S)
        begins_s = now_s if self._chance.random() < FROM_NOW else None
        if SHORT < draw < SHORT + LATER:
            begins_s = now_s + int(later_s)
        return begins_s, now_s + int(short_s) if draw < SHORT else None

    def give(
        self,
        giver: Scribe,
        audience: str,
        command: str,
        kinds: tuple[str, ...],
        begins_s: int | None = None,
        ends_s: int | None = None,
    ) -> None:
        """Let somebody delegate something to somebody, and put it on the log."""
        payload = Payload(
            iss=giver.keyring.did,
            aud=audience,
            sub=self.authority_model.owner,
            cmd=command,
            pol=Policy(policy_of(kinds)),
            nonce=self._chance.randbytes(NONCE_BYTES),
            nbf=UNSET if begins_s is None else begins_s,
            exp=ends_s,
            meta={"mesh": self.cluster.mesh} if self._chance.random() < BOUND else UNSET,
        )
        bringer = self.owner if self._chance.random() < BROUGHT_BY_OWNER else giver
        bringer.bring(giver.keyring.delegate(payload))

    # --- taking back ------------------------------------------------------------------------

    def revoke(self, machine: Machine) -> int:
        """Take back one thing or everything that somebody holds; how much that is."""
        live = self.authority_model.live_grants_to(machine.holder, self.cluster.clock.now_ms())
        if not live or not self.is_chained:
            return 0
        taken = live if self._chance.random() < ALL_AT_ONCE else [self._chance.choice(live)]
        by_did = {one.keyring.did: one for one in self.brokers}
        for link in taken:
            above = [self.owner, *([by_did[link.issuer]] if link.issuer in by_did else [])]
            self._chance.choice(above).revoke(link.cid)
        draw = self._chance.random()
        back_s = self._chance.uniform(*(SOON_S if draw < SOON else LATE_S))
        if draw < 1 - FOR_GOOD or not isinstance(machine, WorkerMachine):
            self._after(machine.name, back_s, partial(self.endow, machine))
        return len(taken)

    def forbid(self, kind: str) -> None:
        """From here on no worker may claim a kind; every other as before."""
        self._forbidden = kind
        for machine in self._machines:
            if isinstance(machine, WorkerMachine):
                self._take_all(machine)
                self.endow(machine)

    def _take_all(self, machine: Machine) -> None:
        for link in self.authority_model.live_grants_to(
            machine.holder, self.cluster.clock.now_ms()
        ):
            self.owner.revoke(link.cid)

    def quarantine(self, machine: Machine) -> bool:
        """Somebody has a copy of a machine's key, and somebody shows what it signed."""
        if machine is self.owner or machine.keyring.did in self.authority_model.quarantined:
            return False
        at = (self.cluster.clock.now_ms(), 0)
        pair = two_faces(self.cluster.mesh, machine.keyring, at, self._chance)
        teller = self._chance.choice([self.owner, *self.brokers])
        teller.show(machine.keyring.did, *pair)
        return True

    # --- the end of an owner ----------------------------------------------------------------

    def recover(self, vault: Scribe, heir: Scribe) -> None:
        """Whoever keeps the recovery key names another owner, who then grants everything anew."""
        old = self.owner
        self._heir = heir.keyring.did
        vault.boot()
        heir.boot()
        vault.recover(self._heir)

        def succeed() -> None:
            if self.is_recovering:
                self._after("recovery", 5.0, succeed)
                return
            # Whoever has the old key may still sign; it leads nowhere.
            old.route(self._chance.choice(KINDS), self._hostile_member.keyring.did)
            self.give(old, self._hostile_member.keyring.did, "/job", EVERY_KIND)
            for machine in (*self._brokers, *self._machines, self._hostile_member):
                wait_s = self._chance.uniform(1.0, 40.0)
                self._after(machine.name, wait_s, partial(self.endow, machine))

        self._after("recovery", 5.0, succeed)

    @property
    def is_recovering(self) -> bool:
        """Whether another owner was named and is not owner yet."""
        return bool(self._heir) and self.authority_model.owner != self._heir

    # --- rest -------------------------------------------------------------------------------

    def restore(self) -> None:
        """Let everybody do its work for good, but for a kind that nobody may."""
        for name in list(self._timers):
            self._drop(name)
        owner = self.owner
        self._readmit_everybody()
        owner.clear_routes()
        if not self.is_chained:
            return
        rest = tuple(kind for kind in KINDS if kind != self._forbidden)
        for machine in (*self.brokers, *self._machines):
            is_bound = bool(self._forbidden) and isinstance(machine, WorkerMachine)
            if is_bound:
                self._take_all(machine)
            giver = self._giver(machine)
            self.give(giver, machine.holder, "/job", rest if is_bound else EVERY_KIND)
            for command in self._needs if machine in self._brokers else machine.needs:
                self.give(giver, machine.holder, command, EVERY_KIND)

    def _readmit_everybody(self) -> None:
        """Now, and again: what somebody was about to show may reach the log later."""
        for did in sorted(self.authority_model.quarantined):
            if did != self._hostile_member.keyring.did:
                self.owner.readmit(did)
        self._after("readmission", READMITTED_EVERY_S, self._readmit_everybody)

    @property
    def is_idle(self) -> bool:
        """Whether everything that was to be written is on the log."""
        return all(one.is_idle for one in (*self._scribes, *self._brokers) if one.is_up)

    # --- time -------------------------------------------------------------------------------

    def _now_s(self) -> int:
        return self.cluster.clock.now_ms() // 1000

    def _after(self, name: str, wait_s: float, then: Callable[[], Any]) -> None:
        self._drop(name)
        loop = self.cluster.loop
        self._timers[name] = loop.call_later(max(wait_s, 0.0), then, context=self._context)

    def _drop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def policy_of(kinds: tuple[str, ...]) -> list[Any]:
    """A policy that admits these kinds: by everything below their first word, or by name."""
    statements: list[Any] = [
        ["like", ".kind", f"{kind.split('.')[0]}.*"] if "." in kind else ["==", ".kind", kind]
        for kind in kinds
    ]
    return statements if len(statements) < 2 else [["or", statements]]
