"""Ops about the mesh as a whole: genesis, rules, routes, coordinator, evidence (spec §7.4)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from antiphon.core.authority.rules import Rules
from antiphon.core.record.branches import Branch
from antiphon.core.record.ids import key_of, short_node
from antiphon.core.record.op import Body, Did, Kind, Label, Op, Seq, Text, WallMs
from antiphon.core.tempo.policy import TempoPolicy


def _control(what: str, *, via_gate: bool = False) -> Branch:
    return Branch(stem=f"ctl.{what}", shape="control", via_gate=via_gate)


GENESIS: Final = _control("genesis")
RULES: Final = _control("rules")
ROUTE: Final = _control("route")
COORDINATOR: Final = _control("coordinator")
RECOVER: Final = _control("recover")
EVIDENCE: Final = _control("evidence", via_gate=True)
READMIT: Final = _control("readmit")
TEMPO: Final = _control("tempo")
ARCHIVE: Final = _control("archive")
PAUSE: Final = _control("pause")


class Genesis(Body, frozen=True):
    """Creates a mesh. The envelope's `mesh` is empty, since this op's digest is the mesh's id."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    owner: Did
    recovery: Did
    rules: Rules


class RulesBody(Body, frozen=True):
    """The complete rules from here on."""

    rules: Rules


class RouteBody(Body, frozen=True):
    """Only `target` may claim jobs below this kind prefix; without a target, clears the route."""

    kind: Kind
    target: Did | None = None


class CoordinatorBody(Body, frozen=True):
    """The node that writes derivations from here on."""

    node: Did


class RecoverBody(Body, frozen=True):
    """A new owner and a new recovery key, signed by the old recovery key."""

    owner: Did
    recovery: Did


class EvidenceBody(Body, frozen=True):
    """Two records that `node` signed with one timestamp, byte for byte."""

    node: Did
    first: Annotated[str, Meta(max_length=96 * 1024)]
    second: Annotated[str, Meta(max_length=96 * 1024)]


class ReadmitBody(Body, frozen=True):
    """Ends a quarantine."""

    node: Did


class TempoBody(Body, frozen=True):
    """The complete tempo policy from here on."""

    policy: TempoPolicy


class ArchiveBody(Body, frozen=True):
    """What had ended before these times is empty from here on."""

    before: WallMs
    memo_before: WallMs
    """For what somebody may ask for again: content without a nonce, and keys."""
    upto: Seq = 0
    """The last record that the archive holds. No verdict depends on this, nor on `segment`."""
    segment: Annotated[str, Meta(max_length=256)] = ""
    """The archive's newest file."""


class PauseBody(Body, frozen=True):
    """Nobody may begin jobs that have all of what is given, or everybody may again."""

    is_paused: bool
    kind: Kind | None = None
    """Jobs of this kind, and of the kinds below it."""
    label: Label | None = None
    """Jobs with this label."""
    plan: Annotated[str, Meta(min_length=1, max_length=63)] | None = None
    """Jobs that were derived from plans of this name."""
    reason: Text = ""


class _MeshOp(Op, frozen=True):
    """An op on the only subject of its branch."""

    def subject(self, mesh: str) -> str:
        """The only subject of its branch."""
        return f"ap.{mesh}.{self.BRANCH.stem}"


class MeshGenesis(_MeshOp, frozen=True, tag="mesh.genesis"):
    """Creates the mesh."""

    body: Genesis
    BRANCH: ClassVar[Branch] = GENESIS
    CREATES_MESH: ClassVar[bool] = True

    def words(self) -> str:
        """In a sentence."""
        return f"created the mesh {self.body.name!r}"


class MeshRules(_MeshOp, frozen=True, tag="mesh.rules"):
    """Replaces the rules."""

    body: RulesBody
    BRANCH: ClassVar[Branch] = RULES

    def words(self) -> str:
        """In a sentence."""
        return "changed the rules"


class MeshTempo(_MeshOp, frozen=True, tag="mesh.tempo"):
    """Replaces the tempo policy."""

    body: TempoBody
    BRANCH: ClassVar[Branch] = TEMPO

    def words(self) -> str:
        """In a sentence."""
        policy = self.body.policy
        return f"set the tempo to {policy.initial_bpm} bpm, {policy.bar_len_beats} beats a bar"


class MeshArchive(_MeshOp, frozen=True, tag="mesh.archive"):
    """Empties the lanes of what ended long ago."""

    body: ArchiveBody
    BRANCH: ClassVar[Branch] = ARCHIVE

    def words(self) -> str:
        """In a sentence."""
        return f"archived what had ended before {self.body.before} ms"


class MeshPause(_MeshOp, frozen=True, tag="mesh.pause"):
    """Pauses new claims, or lets them through again."""

    body: PauseBody
    BRANCH: ClassVar[Branch] = PAUSE

    def words(self) -> str:
        """In a sentence."""
        body = self.body
        done = "paused" if body.is_paused else "resumed"
        why = f": {body.reason}" if body.reason else ""
        return f"{done} {paused_words(body.kind, body.label, body.plan)}{why}"


def paused_words(kind: str | None, label: str | None, plan: str | None) -> str:
    """The jobs that a pause is about, in words."""
    parts = [f"of kind {kind}"] if kind else []
    parts += [f"with the label {label}"] if label else []
    parts += [f"of the plan {plan}"] if plan else []
    return f"jobs {' '.join(parts)}" if parts else "all jobs"


class MeshRoute(Op, frozen=True, tag="mesh.route"):
    """Sets or clears a route."""

    body: RouteBody
    BRANCH: ClassVar[Branch] = ROUTE

    def subject(self, mesh: str) -> str:
        """One for each kind prefix."""
        return f"ap.{mesh}.{ROUTE.stem}.{self.body.kind}"

    def words(self) -> str:
        """In a sentence."""
        if self.body.target is None:
            return f"removed the route of {self.body.kind}"
        return f"routed {self.body.kind} to {short_node(self.body.target)}"


class MeshCoordinator(_MeshOp, frozen=True, tag="mesh.coordinator"):
    """Names the coordinator."""

    body: CoordinatorBody
    BRANCH: ClassVar[Branch] = COORDINATOR

    def words(self) -> str:
        """In a sentence."""
        return f"made {short_node(self.body.node)} the coordinator"


class MeshRecover(_MeshOp, frozen=True, tag="mesh.recover"):
    """Replaces the owner."""

    body: RecoverBody
    BRANCH: ClassVar[Branch] = RECOVER

    def words(self) -> str:
        """In a sentence."""
        return f"made {short_node(self.body.owner)} the owner"


class MeshEvidence(Op, frozen=True, tag="mesh.evidence"):
    """Quarantines an author that signed two ops with one timestamp."""

    body: EvidenceBody
    BRANCH: ClassVar[Branch] = EVIDENCE

    def subject(self, mesh: str) -> str:
        """One for each author."""
        return f"ap.{mesh}.{EVIDENCE.stem}.{key_of(self.body.node)}"

    def words(self) -> str:
        """In a sentence."""
        return f"showed that {short_node(self.body.node)} signed two ops with one timestamp"


class MeshReadmit(Op, frozen=True, tag="mesh.readmit"):
    """Ends a quarantine."""

    body: ReadmitBody
    BRANCH: ClassVar[Branch] = READMIT

    def subject(self, mesh: str) -> str:
        """One for each author."""
        return f"ap.{mesh}.{READMIT.stem}.{key_of(self.body.node)}"

    def words(self) -> str:
        """In a sentence."""
        return f"readmitted {short_node(self.body.node)}"


class NewerProtocol(Op, frozen=True, tag="mesh.rules"):
    """Rules or a genesis of a newer protocol than this code has, read just enough to recognise it.

    Newer rules may have fields that this code does not know. Rejecting them as malformed while
    newer code accepts them would split the mesh, so they are recognised by what never changes.
    """

    body: dict[str, Any]
    BRANCH: ClassVar[Branch] = RULES
    CREATES_MESH: ClassVar[bool] = True

    def subject(self, mesh: str) -> str:
        """A genesis names no mesh."""
        return f"ap.{mesh}.{RULES.stem if self.mesh else GENESIS.stem}"

    def words(self) -> str:
        """In a sentence."""
        return f"announced protocol {self.protocol}"

    @property
    def protocol(self) -> int:
        """The protocol that it announces; 0 if it names none."""
        rules = self.body.get("rules")
        protocol = rules.get("protocol") if isinstance(rules, dict) else None
        return protocol if isinstance(protocol, int) else 0
