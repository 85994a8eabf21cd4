"""The folder of an outbox: who may send what is in it."""

import pytest

from antiphon.errors import Held
from antiphon.runtime.outbox.outbox_store import OutboxStore


def test_one_process_at_a_time_sends(tmp_path):
    store = OutboxStore(tmp_path)
    lock = store.lock()
    with pytest.raises(Held):
        OutboxStore(tmp_path).lock()
    lock.release()
    OutboxStore(tmp_path).lock().release()
