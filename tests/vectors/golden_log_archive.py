"""The golden log's story of an archive; it comes late, since days pass in it."""

from antiphon.core.families.mesh.ops import ArchiveBody, MeshArchive
from antiphon.core.manifest import job_id, with_nonce
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY
from tests.core.ledger import T0, Ledger, Story

DAY = 24 * 3_600_000


def story(ledger: Ledger) -> None:
    """Archives that come too soon and go back, one that counts, and what it says of old ops."""
    now = ledger.history.current
    owner = next(one for one in (OWNER, RECOVERY, ALICE, BOB, CAROL) if one.did == now.owner)
    assert ledger.coordinator(owner, owner, at=14 * DAY) is Verdict.OK
    old = Story(ledger, word="archived")
    old.manifest = with_nonce(old.manifest, "0" * 32, "random")
    old.id = job_id(old.manifest)

    def archive(before: int, at: int) -> None:
        body = ArchiveBody(
            before=T0 + before, memo_before=T0 - 17 * DAY, upto=3, segment="record/1-3"
        )
        ledger.put(MeshArchive, body, owner, at=at)

    archive(14 * DAY, at=14 * DAY + 10)  # early
    archive(13 * DAY, at=14 * DAY + 20)
    archive(DAY, at=14 * DAY + 30)  # stale
    old.schedule(owner, how={"at": 13 * DAY, "stamp": 14 * DAY + 40})  # archived
    old.schedule(owner, how={"at": 14 * DAY + 50})
    old.cancel(owner, at=14 * DAY + 60)
