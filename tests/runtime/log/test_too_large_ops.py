"""What no record can hold is refused by its author, in words, before anything is signed or sent."""

import pytest

from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobYield
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from antiphon.errors import Rejected
from antiphon.runtime.log.author import HOLDS_DATA
from tests.core.largest_ops import largest
from tests.runtime.log.test_author import an_author

LARGEST_PART = {
    "job.schedule": "manifest",
    "plan.put": "manifest",
    "job.complete": "outputs",
    "job.resolve": "outputs",
    "job.offer": "results",
    "mesh.rules": "rules",
    "mesh.genesis": "rules",
    "mesh.evidence": "first",
    "job.yield": "after",
}


class CountedKeys:
    """A keyring that counts its signatures."""

    def __init__(self, keyring) -> None:
        self.did, self.signatures, self._keyring = keyring.did, 0, keyring

    def sign(self, payload_type, payload):
        self.signatures += 1
        return self._keyring.sign(payload_type, payload)


@pytest.mark.parametrize("op", PROTOCOL.family_of, ids=lambda op: op.type_name())
def test_an_author_writes_the_largest_op_or_says_why_not(op):
    author = an_author()
    author._keyring = keys = CountedKeys(author._keyring)
    made = author.compose(op, largest(op), prev=0, hlc=author.tick(), auth=())
    if op.CREATES_MESH:
        author.mesh = ""
    (signed,) = author.sign([made])
    if not isinstance(signed, Rejected):
        assert len(codec.encode(made)) <= codec.MAX_OP_BYTES
        assert keys.signatures == 1
        return
    part = LARGEST_PART[op.type_name()]
    assert keys.signatures == 0
    assert signed.reason == "size"
    assert f"{len(codec.encode(made)):,} bytes" in signed.message
    assert f"a record can have {codec.MAX_OP_BYTES:,}" in signed.message
    assert f"in its {part}" in signed.message
    assert ("artifact" if part in HOLDS_DATA else part) in signed.hint


def test_what_is_too_large_keeps_nothing_else_from_being_signed():
    author, ops = an_author(), []
    small = CancelBody(kind="k", job="0" * 64)
    for op, body in ((JobCancel, small), (JobYield, largest(JobYield)), (JobCancel, small)):
        ops.append(author.compose(op, body, prev=0, hlc=author.tick(), auth=()))
    signed = author.sign(ops)
    assert [isinstance(one, Rejected) for one in signed] == [False, True, False]
