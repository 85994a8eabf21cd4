"""Opening a record never fails, and never yields an op that was not signed as it stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobSchedule, ScheduleBody
from antiphon.core.families.mesh.ops import Genesis, MeshGenesis
from antiphon.core.opened_record import open_record
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import did_of, digest, mesh_id
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, OWNER, sign_batch, sign_bytes, signed
from tests.core.ledger import T0, Ledger, Story
from tests.core.strategies import THOROUGH, any_op

MESH = "a" * 16
JOB = "1" * 64
CLAIM = JobClaim(
    v=1,
    mesh=MESH,
    author=ALICE.did,
    hlc=(T0, 0),
    prev=0,
    deps=(),
    auth=(),
    body=ClaimBody(kind="render", job=JOB, lease_ms=30_000),
)
GOOD = signed(ALICE, CLAIM)
RULES_SUBJECT = f"ap.{MESH}.ctl.rules"


def open_it(payload, subject=GOOD.subject, mesh=MESH):
    return open_record(PROTOCOL, mesh, 7, T0, subject, payload)


def test_a_signed_op_on_its_own_subject_opens():
    opened = open_it(GOOD.payload)
    assert (opened.op, opened.fault) == (CLAIM, None)
    assert (opened.seq, opened.commit_ms, opened.subject) == (7, T0, GOOD.subject)
    assert opened.op_id == digest(GOOD.op_bytes)


def with_bytes(old, new):
    """The claim with some bytes exchanged before it was signed."""
    assert old in GOOD.op_bytes
    return sign_bytes(ALICE, GOOD.op_bytes.replace(old, new))


def replaced(**fields):
    return signed(
        ALICE,
        CLAIM.__class__(**{**{f: getattr(CLAIM, f) for f in CLAIM.__struct_fields__}, **fields}),
    )


BLOCK = codec.encode(ALICE.sign(GOOD.op_bytes))
FAULTS = {
    "no second line": (GOOD.op_bytes, Verdict.FRAME),
    "nothing": (b"", Verdict.FRAME),
    "an empty block": (GOOD.op_bytes + b"\n", Verdict.MALFORMED),
    "a block of another shape": (GOOD.op_bytes + b'\n{"signature":""}', Verdict.MALFORMED),
    "a block with white space": (
        GOOD.op_bytes + b"\n" + BLOCK.replace(b":", b": "),
        Verdict.CANONICAL,
    ),
    "a block with a trailing line feed": (GOOD.payload + b"\n", Verdict.CANONICAL),
    "a signature in hexadecimal digits": (
        GOOD.op_bytes + b'\n{"sig":"' + b"0" * 128 + b'"}',
        Verdict.MALFORMED,
    ),
    "too many bytes": (sign_bytes(ALICE, b" " * (codec.MAX_OP_BYTES + 1)), Verdict.SIZE),
    "no JSON": (sign_bytes(ALICE, b"hello"), Verdict.MALFORMED),
    "white space": (with_bytes(b'"v":1', b'"v": 1'), Verdict.CANONICAL),
    "a duplicate key": (with_bytes(b'"v":1', b'"v":1,"v":1'), Verdict.CANONICAL),
    "an unknown field": (with_bytes(b'"v":1', b'"v":1,"w":1'), Verdict.MALFORMED),
    "another version": (with_bytes(b'"v":1', b'"v":2'), Verdict.VERSION),
    "another version, other fields": (with_bytes(b'"v":1', b'"v":2,"w":1'), Verdict.VERSION),
    "an unknown type": (with_bytes(b"job.claim", b"job.steal"), Verdict.TYPE),
    "an author that is no key": (with_bytes(ALICE.did.encode(), b"did:key:zabc"), Verdict.AUTHOR),
    "an author with a weak key": (
        with_bytes(ALICE.did.encode(), did_of(bytes([1]) + bytes(31)).encode()),
        Verdict.AUTHOR,
    ),
    "someone else's signature": (sign_bytes(BOB, GOOD.op_bytes), Verdict.SIGNATURE),
    "a signature for another purpose": (
        signing.frame(GOOD.op_bytes, ALICE.sign(GOOD.op_bytes, signing.BATCH_TYPE)),
        Verdict.SIGNATURE,
    ),
    "another mesh": (replaced(mesh="b" * 16).payload, Verdict.MESH),
    "no mesh": (replaced(mesh="").payload, Verdict.MESH),
}


@pytest.mark.parametrize("payload, fault", FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_has_its_own_word(payload, fault):
    opened = open_it(payload)
    assert (opened.op, opened.fault, opened.family) == (None, fault, None)


OTHER_SUBJECTS = [
    job_subjects.job(MESH, "render", "2" * 64),
    job_subjects.job(MESH, "render.video", JOB),
    job_subjects.job("b" * 16, "render", JOB),
    job_subjects.call(MESH, "normal", "render", JOB),
    job_subjects.wait(MESH, "render", JOB),
    f"ap.{MESH}.else.render.{JOB}",
    f"ap.{MESH}.ctl.rules",
    f"ap.{MESH}.jobs.job.render.{JOB}.more",
    f"ap.{MESH}.seal",
    "",
]


@pytest.mark.parametrize("subject", OTHER_SUBJECTS)
def test_a_record_on_any_other_subject_is_rejected_as_subject(subject):
    assert open_it(GOOD.payload, subject).fault is Verdict.SUBJECT


@pytest.mark.parametrize(
    "order",
    [
        ("too many bytes", "no JSON"),
        ("another mesh", "another subject"),
        ("another subject", "someone else's signature"),
    ],
)
def test_the_first_fault_in_order_is_the_verdict(order):
    # Mesh before subject before signature: which word is recorded is part of the protocol.
    match order:
        case ("too many bytes", _):
            opened = open_it(sign_bytes(BOB, b"x" * (codec.MAX_OP_BYTES + 1)))
            assert opened.fault is Verdict.SIZE
        case ("another mesh", _):
            opened = open_it(replaced(mesh="b" * 16).payload, OTHER_SUBJECTS[0])
            assert opened.fault is Verdict.MESH
        case _:
            opened = open_it(sign_bytes(BOB, GOOD.op_bytes), OTHER_SUBJECTS[0])
            assert opened.fault is Verdict.SUBJECT


def test_an_op_replayed_on_another_mesh_is_rejected():
    first, second = Story(Ledger()), Story(Ledger(attempts=7))
    assert first.ledger.mesh != second.ledger.mesh
    draft = first.ledger.draft(
        JobSchedule, ScheduleBody(kind="render", manifest=first.manifest), OWNER
    )
    there = draft.subject.replace(first.ledger.mesh, second.ledger.mesh)
    assert second.ledger.append(there, draft.payload) is Verdict.MESH
    assert second.lane.job is None
    assert first.ledger.append(draft.subject, draft.payload) is Verdict.OK


def test_the_genesis_of_another_mesh_lies_on_the_wrong_subject_here():
    body = Genesis(name="other", owner=ALICE.did, recovery=BOB.did, rules=Rules())
    genesis = signed(
        ALICE,
        MeshGenesis(
            v=1, mesh="", author=ALICE.did, hlc=(T0, 0), prev=0, deps=(), auth=(), body=body
        ),
    )
    assert genesis.subject == f"ap.{mesh_id(genesis.op_bytes)}.ctl.genesis"
    assert open_it(genesis.payload, f"ap.{MESH}.ctl.genesis").fault is Verdict.SUBJECT


@THOROUGH
@given(st.binary(max_size=400), st.sampled_from([GOOD.subject, RULES_SUBJECT]))
def test_any_payload_at_all_is_opened_without_an_error(payload, subject):
    opened = open_it(payload, subject)
    assert opened.op is None
    assert opened.fault is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 300_000 + b"\n",
        b'{"a":' * 40_000 + b"\n{}",
        b'{"v":' + b"9" * 9_000 + b'}\n{"sig":"' + b"0" * 128 + b'"}',
        b'{"type":"mesh.rules","body":' + b'{"rules":' * 30_000,
        b'{"v":1e999}\n{}',
        b"\n" * 100,
        b"\xff\xfe\n\xff",
        b"{}\n" + b"[" * 300_000,
        b'{"v":"\\ud800"}\n{}',
    ],
    ids=lambda payload: payload[:14].decode("ascii", "replace"),
)
@pytest.mark.parametrize("subject", [GOOD.subject, RULES_SUBJECT])
def test_a_bomb_is_opened_without_an_error(payload, subject):
    assert open_it(payload, subject).op is None


@THOROUGH
@given(any_op, st.data())
def test_a_signed_record_that_was_changed_anywhere_yields_no_op(op, data):
    by = OWNER if op.author == OWNER.did else ALICE
    record = signed(by, op)
    at = data.draw(st.integers(0, len(record.payload) - 1))
    cut = data.draw(st.integers(0, 2))
    put = data.draw(st.binary(max_size=3))
    changed = record.payload[:at] + put + record.payload[at + cut :]
    opened = open_record(PROTOCOL, MESH, 1, T0, record.subject, changed)
    assert (opened.op is not None) == (changed == record.payload)


@THOROUGH
@given(st.integers(0, len(GOOD.payload) * 8 - 1))
def test_a_signed_record_with_one_flipped_bit_yields_no_op(bit):
    changed = bytearray(GOOD.payload)
    changed[bit // 8] ^= 1 << bit % 8
    assert open_it(bytes(changed)).op is None


@THOROUGH
@given(any_op)
def test_every_op_opens_on_its_own_subject_in_both_signature_forms(op):
    by = OWNER if op.author == OWNER.did else ALICE
    record = signed(by, op)
    mesh = op.mesh or mesh_id(record.op_bytes)
    assert open_record(PROTOCOL, mesh, 1, T0, record.subject, record.payload).op == op
    block = sign_batch(by, mesh, [b"another", record.op_bytes, b"a third"])[1]
    batched = signing.frame(record.op_bytes, block)
    assert open_record(PROTOCOL, mesh, 1, T0, record.subject, batched).op == op


def test_a_batch_signature_for_another_mesh_does_not_open():
    block = sign_batch(ALICE, "b" * 16, [GOOD.op_bytes, b"another"])[0]
    assert open_it(signing.frame(GOOD.op_bytes, block)).fault is Verdict.SIGNATURE


def test_a_record_that_cannot_be_read_still_has_an_id():
    # Of the op where the two lines can be told apart, of everything where they cannot.
    assert open_it(b"junk\n" + BLOCK).op_id == digest(b"junk")
    assert open_it(b"junk").op_id == digest(b"junk")
    assert open_it(b"junk\nmore").op_id == digest(b"junk\nmore")
