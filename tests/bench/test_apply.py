"""`bench apply` times a full node that verifies what a new one has to."""

from antiphon.core.record import signing
from bench.apply import START_MS, signatures_of, time_full_node, time_reducer
from bench.signed_log import SignedLog

OPS = 330


async def test_shared_signatures_are_verified_while_the_full_node_is_timed():
    log = SignedLog(START_MS)
    signed = log.records_together(OPS, 16)
    time_reducer(log.mesh, signed)  # verifies all of them, in this process
    await time_full_node(log.mesh, signed)
    roots = {block.sig for one in signed if (block := signing.unframe(one.payload)[1]) and block.of}
    assert len(roots) > 10
    assert signing._is_root_signed.cache_info().misses == len(roots)


def test_shared_signatures_are_fewer():
    log = SignedLog(START_MS)
    single, together = list(log.records(OPS)), log.records_together(OPS, 16)
    proofs = sum(b'"proof":{' in one.payload for one in single)
    assert signatures_of(single) == OPS + proofs
    assert signatures_of(together) < OPS / 4 + proofs
