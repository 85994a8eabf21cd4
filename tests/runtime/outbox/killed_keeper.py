"""A process that keeps items and says so, until it is killed: `killed_keeper.py FOLDER`."""

import sys
from itertools import count
from pathlib import Path

from antiphon.runtime.outbox.outbox_item import OutboxItem, Submit
from antiphon.runtime.outbox.outbox_store import OutboxStore
from tests.runtime.outbox.test_outbox_sender import OTHER, body

store = OutboxStore(Path(sys.argv[1]))
for number in count():
    item = OutboxItem(what=Submit(body(number)), author=OTHER, hlc=(1_000 + number, 0), at_ms=1)
    store.put(item)
    print(item.id, flush=True)
