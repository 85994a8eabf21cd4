"""What a person is told about items of the outbox."""

import pytest

from antiphon.core.families.memory.writing import Wanted
from antiphon.interfaces.cli.shared.outbox_words import item_object, item_pieces
from antiphon.runtime.outbox.outbox_item import OutboxItem, Put


@pytest.mark.parametrize("state", ["waiting", "asks", "held", "dropped"])
def test_who_has_to_decide_is_told_what_to_type(state):
    what = Put(Wanted(space="notes.team", key="plan", agent="main", value=None, base=0))
    item = OutboxItem(what=what, author="me", hlc=(1, 0), at_ms=1, state=state, why="no answer")
    line = "".join(text for text, _ in item_pieces(item))
    assert "delete 'plan' in notes.team: no answer" in line
    typed = f"antiphon outbox retry {item.id} sends it, antiphon outbox drop {item.id} removes it"
    assert (typed in line, item_object(item)["hint"] == typed) == (state == "asks",) * 2
