"""Any interleaving of honest, stale and hostile ops keeps the guarantees of spec §15.

The ledger has no compare-and-set, stamps need not be honest, and authors may do anything that a
key lets them. After every record: what was rejected changed nothing but its tail, and what was
accepted fits an independent account. At the end: every way to read the log gives the same
verdicts, and every job that is left can be brought to an end.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    MAX_ARTIFACTS,
    ArtifactBody,
    CancelBody,
    ClaimBody,
    CompleteBody,
    EvictBody,
    ExpireBody,
    JobArtifact,
    JobCancel,
    JobClaim,
    JobComplete,
    JobEvict,
    JobExpire,
    JobOffer,
    JobResolve,
    JobSchedule,
    JobStart,
    JobYield,
    OfferBody,
    ResolveBody,
    Retry,
    ScheduleBody,
    StartBody,
    YieldBody,
)
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.families.jobs.state import EMPTY, HELD, State
from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    MeshCoordinator,
    MeshRoute,
    MeshRules,
    RouteBody,
    RulesBody,
)
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER, Author, proved, sign_bytes
from tests.core.ledger import T0, Ledger, Reader, Story
from tests.core.strategies import BRISK
from tests.core.tenures import Account
from tests.examples import examples
from tests.job_lanes import job_of

DAY = 86_400_000
PLACES = [("a", "true"), ("a.b", "true"), ("jobs", "true"), ("a", "false")]
PLACES_FOR_JUNK = ["jobs.wait", "jobs.1", "jobs.3", "jobs.x", "jobs.job", "else", "ctl", "ctl.x"]
STRANGER = Author("stranger")
RULES = {"attempts": 4, "yields_max": 3, "max_drift_ms": 2_000}

which = st.integers(0, 3)
EVERYONE = (ALICE, BOB, CAROL, OWNER)
people = st.sampled_from(EVERYONE)
anyone = st.none() | people  # None: whoever holds the job
fences = st.sampled_from(["current"] * 4 + ["old", "zero", "future"])
honest = st.just({})
# What a broken or lying author changes. Most ops are honest, or nothing would ever happen.
hostile = st.fixed_dictionaries(
    {},
    optional={
        "prev": st.sampled_from([-1, 1, 5]),
        "wall": st.sampled_from([-DAY * 31, -30_000, -1, 1_999, 2_001, 30_000]),
        "repeat": st.booleans(),
        "stamp": st.sampled_from([-20_000, -1, 1, 20_000, DAY * 31]),
        "deps": st.sampled_from(["good", "bad", "future"]),
        "harm": st.sampled_from(["mesh", "subject", "signature", "bytes"]),
        "unproved": st.booleans(),
    },
)
how = st.one_of(honest, honest, honest, hostile)
# What goes wrong with an op that is otherwise right: one clock of two, or a used timestamp.
SLIPS = [{}, {}, {}, {"stamp": -1}, {"wall": -1}, {"repeat": True}, {"prev": 1}]
slips = st.sampled_from(SLIPS)


class AnyInterleaving(RuleBasedStateMachine):
    """Several jobs on one log."""

    lanes_in_play = 4

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(**RULES)
        self.rules = dict(RULES)
        self.stories = [Story(self.ledger, kind=kind, word=word) for kind, word in PLACES]
        self.accounts = [Account() for _ in PLACES]
        self.now = 1_000

    # --- putting records on the log -----------------------------------------------------------

    def story(self, at):
        return self.stories[at % self.lanes_in_play]

    def holder(self, story, by):
        job = story.lane.job
        if by is not None:
            return by
        claimer = job.claimer if job else ""
        return next((one for one in EVERYONE if one.did == claimer), ALICE)

    def fence(self, story, which_fence):
        account = self.accounts[self.stories.index(story)]
        match which_fence:
            case "current":
                return story.fence
            case "old":
                return account.fences[0] if account.fences else "0" * 16
            case "zero":
                return "0" * 16
            case _:
                return "f" * 16

    def stamped(self, story, twist):
        """An honest author's timestamp, unless the twist says otherwise."""
        self.now += 1
        last = story.lane.job.hlc if story is not None and story.lane.job else (0, 0)
        at, logical = self.now, 0
        if (T0 + at, 0) <= last:
            at, logical = last[0] - T0, last[1] + 1
        if twist.get("repeat") and last > (0, 0):  # one timestamp for two ops
            at, logical = last[0] - T0, last[1]
        return at + twist.get("wall", 0), logical

    def put(self, kind, body, by, twist, story=None):
        if kind is JobComplete and not twist.get("unproved"):
            body = proved(by, self.ledger.mesh, body)
        at, logical = self.stamped(story, twist)
        deps = ()
        match twist.get("deps"):
            case "good":
                deps = (self.ledger.dep(1),)
            case "bad":
                deps = ((1, "blake3:" + "0" * 64),)
            case "future":
                deps = ((len(self.ledger.log) + 2, "blake3:" + "0" * 64),)
        mesh = "b" * 16 if twist.get("harm") == "mesh" else None
        draft = self.ledger.draft(kind, body, by, at=at, logical=logical, deps=deps, mesh=mesh)
        if "prev" in twist:
            prev = max(0, draft.op.prev + twist["prev"])
            draft = self.ledger.draft(
                kind, body, by, at=at, logical=logical, deps=deps, mesh=mesh, prev=prev
            )
        subject, payload = draft.subject, draft.payload
        match twist.get("harm"):
            case "subject":
                subject = self.stories[0].ledger.log[-1].subject + "x"
            case "signature":
                payload = sign_bytes(STRANGER, draft.op_bytes)
            case "bytes":
                payload = payload[:-1]
            case "mesh":
                subject = subject.replace("b" * 16, self.ledger.mesh)
        # The stamp of a record is the engine's: close to now, or whatever a bad engine says.
        self.commit(subject, payload, stamp=self.now + twist.get("stamp", 0))

    def commit(self, subject, payload, *, stamp):
        tail = self.ledger.tail(subject)
        before = dict(self.ledger.reader.lanes)
        control = self.ledger.history.current
        verdict = self.ledger.append(subject, payload, stamp=stamp)
        seq = len(self.ledger.log)
        after = self.ledger.reader.lanes
        pair = job_of(subject)
        for key, lane in after.items():
            old = before.get(key, EMPTY)
            if key != pair:
                assert lane == old
                continue
            slot = PROTOCOL.place_of(subject).slot
            assert lane.tails == (*old.tails[:slot], seq, *old.tails[slot + 1 :])
            if verdict is not Verdict.OK:
                assert lane.job == old.job
        if verdict is not Verdict.OK or pair is not None:
            assert self.ledger.history.current is control
        if verdict is Verdict.OK and pair is not None:
            at = next(at for at, one in enumerate(self.stories) if (one.kind, one.id) == pair)
            self.accounts[at].accept(payload, T0 + stamp, tail, self.rules)
        self.agree()

    def agree(self):
        for story, account in zip(self.stories, self.accounts, strict=True):
            job = story.lane.job
            assert (job is not None) == account.called
            if job is None:
                continue
            assert job.is_terminal == account.ended
            assert (job.state in HELD) == (account.holder is not None)
            if account.holder is not None:
                assert (job.claimer, job.fence) == (account.holder, account.fence)
                assert job.deadline_ms == account.deadline
            assert bool(account.results) == (job.outcome in {"succeeded", "failed"})
            for sort in MAX_ARTIFACTS:
                assert count_of(job, sort) == account.artifacts[sort]

    # --- an honest life -----------------------------------------------------------------------

    @initialize(
        waits=st.lists(st.sampled_from([None, 0, 2_000]), min_size=4, max_size=4),
        attempts=st.sampled_from([None, 2, 5]),
        window=st.sampled_from([None, 40_000]),
    )
    def call_them_all(self, waits, attempts, window):
        start_by = None if window is None else T0 + self.now + window
        for story, delay in zip(self.stories[: self.lanes_in_play], waits, strict=False):
            body = ScheduleBody(
                kind=story.kind,
                manifest=story.manifest,
                start_by=start_by,
                not_before=None if delay is None else T0 + delay,
                retry=Retry(attempts=attempts),
            )
            self.put(JobSchedule, body, OWNER, {}, story)

    def pick(self, at, states):
        """One of the jobs in these states, or None."""
        found = [
            story for story in self.stories if story.lane.job and story.lane.job.state in states
        ]
        return found[at % len(found)] if found else None

    def do(self, story, kind, body_type, by=None, twist=None, **fields):
        body = body_type(kind=story.kind, job=story.id, **fields)
        self.put(kind, body, self.holder(story, by), twist or {}, story)

    @precondition(lambda self: self.pick(0, {State.WAITING}))
    @rule(at=which, by=people, off=st.sampled_from([None, -2, -1, 0]), twist=slips)
    def offer(self, at, by, off, twist):
        """Offer a delayed job at once, or around its time; `put` adds a millisecond."""
        story = self.pick(at, {State.WAITING})
        if off is not None:
            self.now = max(self.now, story.job.not_before_ms - T0 + off)
        self.do(story, JobOffer, OfferBody, by, twist)

    @precondition(lambda self: self.pick(0, {State.PENDING}))
    @rule(
        at=which, by=people, begin=st.booleans(), patient=st.booleans(),
        lease_ms=st.sampled_from([10_000, 60_000]),
    )  # fmt: skip
    def take(self, at, by, begin, patient, lease_ms):
        story = self.pick(at, {State.PENDING})
        if patient:
            self.now = max(self.now, story.job.retry_after_ms - T0)
        self.do(story, JobClaim, ClaimBody, by, lease_ms=lease_ms, begin=begin)

    @precondition(lambda self: self.pick(0, HELD))
    @rule(
        at=which, lease_ms=st.sampled_from([10_000, 120_000]), named=st.booleans(),
        off=st.sampled_from([None, None, -1, 0]), twist=slips,
    )  # fmt: skip
    def renew(self, at, lease_ms, named, off, twist):
        """Renew at once, or around the deadline; `put` adds a millisecond."""
        story = self.pick(at, HELD)
        if off is not None:
            self.now = max(self.now, story.job.deadline_ms - T0 + off)
        fence = story.fence if named else None
        self.do(story, JobClaim, ClaimBody, twist=twist, lease_ms=lease_ms, fence=fence)

    @precondition(lambda self: self.pick(0, {State.CLAIMED}))
    @rule(at=which, by=anyone, name=fences, twist=slips)
    def begin(self, at, by, name, twist):
        story = self.pick(at, {State.CLAIMED})
        fence = self.fence(story, name)
        self.do(story, JobStart, StartBody, by, twist, fence=fence)

    @precondition(lambda self: self.pick(0, HELD))
    @rule(
        at=which, by=anyone, name=fences, twist=slips,
        status=st.sampled_from(["succeeded", "failed"]),
    )  # fmt: skip
    def finish(self, at, by, name, twist, status):
        story = self.pick(at, HELD)
        fence = self.fence(story, name)
        self.do(story, JobComplete, CompleteBody, by, twist, fence=fence, status=status)

    @precondition(lambda self: self.pick(0, HELD))
    @rule(
        at=which, by=anyone, name=fences, twist=slips, off=st.sampled_from([0, 0, 0, -1, 1]),
        sort=st.sampled_from(["step", "step", "part", "snapshot"]), is_stored=st.booleans(),
    )  # fmt: skip
    def store(self, at, by, name, twist, off, sort, is_stored):
        """Store what the run has made, with the next number or one beside it."""
        story = self.pick(at, HELD)
        number = count_of(story.job, sort)
        content = {"digest": f"blake3:{number:064x}", "size": 1} if is_stored else {"value": "1"}
        self.do(
            story, JobArtifact, ArtifactBody, by, twist, fence=self.fence(story, name),
            as_=sort, name="one", n=max(number + off, 0), **content,
        )  # fmt: skip

    @precondition(lambda self: self.pick(0, HELD))
    @rule(
        at=which, by=anyone, name=fences, twist=slips,
        reason=st.sampled_from(["error", "drain"]), pause=st.sampled_from([0, 7_000, 2**50]),
    )  # fmt: skip
    def give_back(self, at, by, name, twist, reason, pause):
        story = self.pick(at, HELD)
        fence = self.fence(story, name)
        self.do(
            story, JobYield, YieldBody, by, twist,
            fence=fence, reason=reason, retry_after_ms=pause,
        )  # fmt: skip

    @precondition(lambda self: self.pick(0, HELD))
    @rule(at=which, by=people, off=st.sampled_from([-1, 0, 5_000]), twist=slips)
    def lapse(self, at, by, off, twist):
        """Expire a tenure around its deadline; `put` adds a millisecond."""
        story = self.pick(at, HELD)
        self.now = max(self.now, story.job.deadline_ms - T0 + off)
        self.do(story, JobExpire, ExpireBody, by, twist, fence=story.fence)

    # --- anything else ------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([1, 900, 900, 5_001, 5_001, 10_001, 30_000, 8 * DAY]))
    def time_passes(self, by_ms):
        self.now += by_ms

    @rule(
        at=which, by=anyone, name=fences, kind=st.sampled_from(JOBS.ops),
        flag=st.booleans(), number=st.integers(0, 4), twist=how,
    )  # fmt: skip
    def anything(self, at, by, name, kind, flag, number, twist):
        """Any op by anyone with any fence, and perhaps worse."""
        story = self.story(at)
        fence = self.fence(story, name)
        job = {"kind": story.kind, "job": story.id}
        body = {
            JobSchedule: lambda: ScheduleBody(
                kind=story.kind, manifest=story.manifest, priority=PRIORITIES[number % 3],
                not_before=T0 if flag else None,
            ),
            JobOffer: lambda: OfferBody(**job, priority=PRIORITIES[number % 3]),
            JobClaim: lambda: ClaimBody(
                **job, lease_ms=[1, 5_000, 10_000, 120_000, 10**9][number], begin=flag,
                fence=fence if number % 2 else None,
            ),
            JobStart: lambda: StartBody(**job, fence=fence),
            JobComplete: lambda: CompleteBody(**job, fence=fence, status="succeeded"),
            JobYield: lambda: YieldBody(**job, fence=fence, reason="error"),
            JobArtifact: lambda: ArtifactBody(
                **job, fence=fence, as_=["step", "part", "snapshot"][number % 3], name="one",
                n=number // 2, value="1" if flag else None,
                digest=None if flag else f"blake3:{number:064x}", size=None if flag else number,
            ),
            JobExpire: lambda: ExpireBody(**job, fence=fence if flag else None),
            JobResolve: lambda: ResolveBody(**job, children=((job["job"], number),) * number),
            JobCancel: lambda: CancelBody(**job),
            JobEvict: lambda: EvictBody(**job, hash=f"blake3:{number:064x}"),
        }[kind]()  # fmt: skip
        if kind is JobCancel and number:
            twist = {**twist, "prev": 1}  # a cancel that counts is rare, or nothing would live
        self.put(kind, body, self.holder(story, by), twist, story)

    @rule(
        what=st.sampled_from(["route", "coordinator", "rules"]), to=people, by=people,
        flag=st.booleans(), twist=how,
        values=st.fixed_dictionaries({}, optional={
            "attempts": st.sampled_from([2, 101]), "yields_max": st.sampled_from([0, 5]),
            "lease_min_ms": st.just(8_000),
        }),
    )  # fmt: skip
    def govern(self, what, to, by, flag, twist, values):
        by = OWNER if flag else by
        match what:
            case "route":
                body = RouteBody(kind="a.b" if flag else "a", target=to.did if to else None)
                self.put(MeshRoute, body, by, twist)
            case "coordinator":
                self.put(MeshCoordinator, CoordinatorBody(node=to.did), by, twist)
            case _:
                rules = Rules(authority="open", **{**RULES, **values})
                self.put(MeshRules, RulesBody(rules=rules), by, twist)
        in_force = self.ledger.history.current.rules
        self.rules = {name: getattr(in_force, name) for name in RULES}

    @rule(
        at=which, junk=st.none() | st.binary(max_size=20), back=st.integers(1, 10),
        place=st.sampled_from(PLACES_FOR_JUNK),
    )  # fmt: skip
    def junk(self, at, junk, back, place):
        """Bytes that are no record, or an old record in any place."""
        story = self.story(at)
        old = self.ledger.log[-min(back, len(self.ledger.log))]
        tail = "" if place.startswith("ctl") else f".{story.kind}.{story.id}"
        subject = f"ap.{self.ledger.mesh}.{place}{tail}"
        if junk is None and at % 2:
            subject = old.subject
        self.commit(subject, old.payload if junk is None else junk, stamp=self.now)

    # --- what must hold at the end ------------------------------------------------------------

    def teardown(self):
        self.replay_alike()
        for at in range(len(self.stories)):
            self.bring_to_an_end(at)
        self.replay_alike()

    def replay_alike(self):
        """One go, and lane by lane with all control ops known beforehand: the same verdicts."""
        log, mesh = self.ledger.log, self.ledger.mesh
        again = Reader(mesh, log)
        assert [again.judge(record) for record in log] == self.ledger.verdicts
        assert again.lanes == self.ledger.reader.lanes
        for story in reversed(self.stories):
            light = Reader(mesh, log)
            for record in log:
                if subjects.matches(subjects.all_control(mesh), record.subject):
                    assert light.judge(record) is self.ledger.verdicts[record.seq - 1]
            filters = job_subjects.lane(mesh, story.kind, story.id)
            for record in log:
                if any(subjects.matches(each, record.subject) for each in filters):
                    assert light.judge(record) is self.ledger.verdicts[record.seq - 1]
            assert light.lanes.get((story.kind, story.id), EMPTY) == story.lane

    def bring_to_an_end(self, at):
        """Two expiries suffice from anywhere: one for the tenure, one for the wait."""
        story = self.stories[at]
        for _ in range(2):
            job = story.lane.job
            if job is None or job.is_terminal:
                return
            due = job.deadline_ms if job.state in HELD else job.start_by_ms
            self.now = max(self.now, due - T0)
            fence = job.fence if job.state in HELD else None
            body = ExpireBody(kind=story.kind, job=story.id, fence=fence)
            self.put(JobExpire, body, OWNER, {}, story)
        assert story.job.is_terminal


class OneLane(AnyInterleaving):
    """The same, all on one job: deeper into its life."""

    lanes_in_play = 1


# Shrinking a failure may take longer than the suite's own limit for a test.
PROFILE = settings(BRISK, max_examples=examples(80), stateful_step_count=50)
AnyInterleaving.TestCase.settings = PROFILE
OneLane.TestCase.settings = PROFILE

TestAnyInterleaving = pytest.mark.req("M4", "M5", "M6", "M7", "M10")(AnyInterleaving.TestCase)
TestOneLane = pytest.mark.req("M4", "M5", "M6", "M7", "M9", "M10")(OneLane.TestCase)
