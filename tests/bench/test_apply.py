"""`bench apply` times a full node that verifies what a new one has to."""

from antiphon.core.record import signing
from bench.apply import START_MS, signatures_of, time_full_node, time_reducer
from bench.signed_log import SignedLog

OPS = 330


async def test_shared_signatures_are_verified_while_the_full_node_is_timed(monkeypatch):
    log = SignedLog(START_MS)
    signed = log.records_together(OPS, 16)
    time_reducer(log.mesh, signed)  # verifies all of them, in this process
    verify, verified = signing.bindings.crypto_sign_open, []

    def counted(message, key):
        verified.append(message[:64])
        return verify(message, key)

    monkeypatch.setattr(signing.bindings, "crypto_sign_open", counted)
    await time_full_node(log.mesh, signed)
    roots = {block.sig for one in signed if (block := signing.unframe(one.payload)[1]).of}
    assert len(roots) > 10
    assert roots <= set(verified)


def test_shared_signatures_are_fewer():
    log = SignedLog(START_MS)
    single, together = list(log.records(OPS)), log.records_together(OPS, 16)
    proofs = sum(b'"proof":{' in one.payload for one in single)
    assert signatures_of(single) == OPS + proofs
    assert signatures_of(together) < OPS / 4 + proofs
