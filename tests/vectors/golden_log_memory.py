"""The golden log's documents: written, contested, resolved, deleted. Bob owns the mesh by now."""

from antiphon.core.families.memory.ops import MAX_SIBLINGS, Inline, MemoryBody, MemoryPut, Stored
from antiphon.core.families.memory.state import document_key
from antiphon.core.record.ids import digest
from tests.core.authors import ALICE, BOB
from tests.core.ledger import Ledger

START = 30 * 86_400_000
SPACE, KEY = "notes.team", "plan"


def story(ledger: Ledger) -> None:
    """One document under each strategy, until it has as many siblings as it can have."""
    at = START

    def put(text: str | None, by=BOB, **fields) -> int:
        nonlocal at
        at += 10
        value = None if text is None else Inline(text=text)
        body = MemoryBody(kind=SPACE, key=KEY, agent="main", **{"value": value, **fields})
        ledger.put(MemoryPut, body, by, at=at)
        return len(ledger.log)

    def siblings():
        return ledger.reader.all_lanes[document_key(SPACE, KEY)].state.siblings

    put(None)  # already
    put("1", ALICE)  # no_chain
    first = put("1")
    put("2")  # base
    second = put(None, value=Stored(hash=digest(b"2"), size=1), base=first)
    put("3", base=first, found=second)  # base
    put("3", base=first, found=second, strategy="merge")  # base
    third = put("3", base=first, found=second, strategy="local")
    for number in range(MAX_SIBLINGS + 1):  # the last: unresolved
        put(str(number), base=second, found=third, strategy="defer")
    put("4", base=third)  # siblings
    fourth = put("4", base=third, resolves=(siblings()[0].op,), keeps=siblings()[1:])
    ids = tuple(one.op for one in siblings())
    fifth = put(None, base=fourth, resolves=ids, strategy="merge")
    put(None, base=fifth)  # already
