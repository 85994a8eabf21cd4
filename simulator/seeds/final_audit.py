"""What is checked when all is quiet: agreement, promises, replicas, and that everything ended."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from blake3 import blake3

from antiphon.core.families.jobs import JOBS
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.engines.memory import MemoryEngine
from antiphon.ports import Record
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.lane_reader import REFUSED_KEPT
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import SEAL_LANE, FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.testing.host_clock import SeededEntropy
from simulator.actors.machines import FullMachine, WatchedKeyring, WorkerMachine
from simulator.actors.workload import Workload
from simulator.checks.law_state import LaneFacts, LawState
from simulator.checks.plain_record import Key
from simulator.cluster import Cluster

FAR_MS: Final = 2**60
MANY: Final = 1_000_000


class Auditor:
    """Reads a quiet cluster and accuses where something does not add up."""

    def __init__(self, cluster: Cluster) -> None:
        """Its own line to the engine is without faults."""
        self.cluster = cluster
        self.referee = cluster.referee
        self._fresh: FullNode | None = None

    def close(self) -> None:
        """Close the replica that replays were read into."""
        if self._fresh is not None:
            self._fresh.replica.close()

    def _replica(self, path: Path | str) -> Replica:
        return Replica(path, mesh=self.cluster.mesh, protocol=self.cluster.protocol)

    def visitor(self, name: str) -> Session:
        """A newcomer that has read nothing yet."""
        keyring = WatchedKeyring(f"{self.cluster.seed}/{name}", self.referee, is_honest=True)
        clock, mesh = self.cluster.clock, self.cluster.mesh
        protocol = self.cluster.protocol
        author = Author(mesh, keyring, clock, max_drift_ms=2_000, mark=NoMark(), protocol=protocol)
        engine = MemoryEngine(self.cluster.server, mesh)
        return Session(engine, author, clock, SeededEntropy(name))

    def every_job_ends(self, workers: list[WorkerMachine]) -> None:
        """Whatever was called has ended, unless nobody alive may claim it."""
        for key in unfinished(self.cluster, workers):
            job = self.referee.lanes[key].job
            state = job.state.value if job else "nowhere"
            self.referee.accuse("every_job_ends", f"still {state} long after all faults", key)

    def promises_kept(self, workload: Workload) -> None:
        """Whatever the engine acknowledged is on the log, byte for byte."""
        for promise in workload.promises:
            stored = self.referee.log.at(promise.seq)
            if stored is None or stored.payload != promise.payload:
                what = f"record {promise.seq} was acknowledged and is not there"
                self.referee.accuse("promises_kept", what, None, promise.seq)

    def seals_are_true(self) -> None:
        """Every accepted seal is the root of what lies on the log, computed here once more."""
        hashes = [
            _leaf(self.referee.log.at(seq), verdict.value, after)
            for seq, (verdict, after) in enumerate(
                zip(self.referee.verdicts, self.referee.afters, strict=True), start=1
            )
        ]
        for seq, verdict in enumerate(self.referee.verdicts, start=1):
            record = self.referee.log.at(seq)
            if record is None or not record.subject.endswith(".seal") or verdict is not Verdict.OK:
                continue
            body = json.loads(record.payload.partition(b"\n")[0])["body"]
            root = _root(hashes[: body["upto"]])
            if body["root"] != root.hex() or body["size"] != body["upto"]:
                self.referee.accuse("seals_are_true", "a false seal was accepted", None, seq)

    async def light_equals_full(self, machines: list[FullMachine]) -> None:
        """Each lane, read alone by a newcomer, gets the verdicts that every full node recorded."""
        light = self.visitor("light")
        await light.sync_control()
        jobs = {LaneKey(JOBS.name, *key): lane for key, lane in self.referee.lanes.items()}
        others = {key: lane for key, lane in self.referee.others.items() if key != SEAL_LANE}
        for key, lane in {**jobs, **others}.items():
            view = await light.read(key)
            said = {one.opened.seq: one.verdict for one in view.history}
            for seq, verdict in said.items():
                if verdict is not self.referee.verdicts[seq - 1]:
                    known = self.referee.verdicts[seq - 1].value
                    what = f"a light reader says {verdict.value}, the log {known}"
                    self.referee.accuse("light_equals_full", what, key[1:], seq)
            if view.lane != lane:
                self.referee.accuse("light_equals_full", "a light reader ends elsewhere", key[1:])
            for machine in machines:
                self._compare(machine, key, said)

    def _compare(self, machine: FullMachine, key: LaneKey, said: Mapping[int, Verdict]) -> None:
        if machine.replica is None:
            what = f"{machine.name} did not come back"
            self.referee.accuse("light_equals_full", what, key[1:])
            return
        for stored in machine.replica.lane_records(key):
            seq = stored.record.seq
            if seq not in said and stored.verdict is not Verdict.OK and len(said) >= REFUSED_KEPT:
                continue  # of a lane full of junk a light reader keeps the newest of it
            if said.get(seq) is not stored.verdict:
                what = f"{machine.name} has {stored.verdict.value}, a light reader {said.get(seq)}"
                self.referee.accuse("light_equals_full", what, key[1:], seq)

    async def restart_equals_replay(self, machines: list[FullMachine]) -> None:
        """A dead node's replica, opened again, is what a replay up to its cursor gives.

        Kills the machines. Called in the middle of everything, when many jobs are open.
        """
        found: list[tuple[int, FullMachine, str]] = []
        for machine in machines:
            machine.kill()
            again = FullNode(
                self.visitor(f"{machine.name}-again"),
                self._replica(machine.replica_path),
            )
            await again.resume()
            found.append((again.applied, machine, self._state_of(again.replica)))
            again.replica.close()
        for applied, machine, restarted in sorted(found, key=lambda one: one[0]):
            replayed = await self._replay(applied)
            if restarted != replayed:
                what = f"{machine.name} at {applied}: restarted {restarted}, replayed {replayed}"
                self.referee.accuse("restart_equals_replay", what)

    async def running_equals_replay(self, machines: list[FullMachine]) -> None:
        """A node that ran all along, restarts included, is where a replay of everything is."""
        replayed = await self._replay(self.referee.log.last_seq)
        for machine in machines:
            if machine.replica is not None:
                machine.replica.flush()
                running = self._state_of(machine.replica)
                if running != replayed:
                    what = f"{machine.name}: running {running}, replayed {replayed}"
                    self.referee.accuse("restart_equals_replay", what)

    async def _replay(self, upto: int) -> str:
        """The state of a node that reads the log from its beginning to `upto`."""
        if self._fresh is None:
            self._fresh = FullNode(self.visitor("fresh"), self._replica(":memory:"))
        node = self._fresh
        records = [self.referee.log.at(seq) for seq in range(node.applied + 1, upto + 1)]
        batch = [record for record in records if record is not None]
        if batch:
            await node.apply(batch)
        return self._state_of(node.replica)

    def _state_of(self, replica: Replica) -> str:
        jobs = [LaneKey(JOBS.name, *key) for key in self.referee.lanes]
        return state_of(replica, sorted([*jobs, *self.referee.others]))


def _leaf(record: Record | None, verdict: str, after: int) -> bytes:
    if record is None:
        return b""
    name = f"blake3:{blake3(record.payload).hexdigest()}"
    fields = [record.seq, record.stamp_ns // 1_000_000, record.subject, name, verdict, after]
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(b"\0\1" + text.encode()).digest()


def _root(hashes: list[bytes]) -> bytes:
    """RFC 6962, level by level: an odd one out moves up as it is."""
    level = hashes
    while len(level) > 1:
        pairs = [
            hashlib.sha256(b"\1" + level[at] + level[at + 1]).digest()
            for at in range(0, len(level) - 1, 2)
        ]
        level = [*pairs, *level[len(pairs) * 2 :]]
    return level[0]


def unfinished(cluster: Cluster, workers: list[WorkerMachine]) -> list[Key]:
    """Open jobs that have no excuse to be: held, overdue, or somebody alive may claim them.

    Those that wait for a job with an excuse have one, too.
    """
    ledger, now_ms = cluster.referee.ledger, cluster.clock.now_ms()
    authority_model = ledger.authority_model
    alive = [(one.keyring.did, one.kinds) for one in workers if one.is_up]
    claimable: dict[str, bool] = {}

    def is_claimable(kind: str) -> bool:
        if kind not in claimable:
            claimable[kind] = authority_model.is_open or any(
                kind in kinds and authority_model.may(did, "/job/claim", kind, now_ms)
                for did, kinds in alive
            )
        return claimable[kind]

    lanes = {key: ledger.lane(key) for key in cluster.referee.open_jobs()}
    stuck = {
        key
        for key, lane in lanes.items()
        if lane.held is None and (lane.quorum or not lane.is_waiting)
        if now_ms <= lane.start_by_ms
        if not is_claimable(key[0])
    }
    while more := _held_back(ledger, lanes, stuck, now_ms):
        stuck |= more
    return [key for key in lanes if key not in stuck]


def _held_back(
    ledger: LawState, lanes: dict[Key, LaneFacts], stuck: set[Key], now_ms: int
) -> set[Key]:
    """Jobs that wait for others or replicas that are stuck, or for the room that those take."""
    taken = Counter(lanes[key].label for key in stuck if lanes[key].is_counted)
    parents = {lanes[key].parent_seq for key in stuck}
    return {
        key
        for key, lane in lanes.items()
        if key not in stuck and lane.is_waiting and now_ms <= lane.start_by_ms
        if not stuck.isdisjoint(lane.after)
        or (lane.quorum and lane.called.seq in parents)
        or taken[lane.label] >= ledger.limits.get(lane.label, taken[lane.label] + 1)
    }


def state_of(replica: Replica, keys: list[LaneKey]) -> str:
    """A digest of everything that a replica knows, read through its public questions."""
    state = blake3()
    for key in keys:
        state.update(msgspec.msgpack.encode(replica.lane(key)))
        for stored in replica.lane_records(key):
            state.update(f"{stored.record.seq} {stored.verdict.value}\n".encode())
    for record in replica.control_records():
        found = replica.record(record.seq)
        state.update(f"{record.seq} {found.verdict.value if found else '?'}\n".encode())
    due = [(job.kind, job.id) for job in replica.ask(ReplicaJobs).overdue(FAR_MS, limit=MANY)]
    unanswered = [
        (job.kind, job.id) for job in replica.ask(ReplicaJobs).unanswered(FAR_MS, limit=MANY)
    ]
    counts = sorted((name, jobs) for name, jobs in replica.sizes.by_state().items() if jobs)
    state.update(repr((sorted(due), sorted(unanswered), counts, replica.cursor)).encode())
    return state.hexdigest()[:16]
