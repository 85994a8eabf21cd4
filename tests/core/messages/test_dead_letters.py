"""The dead letters of an inbox: whose make room, and whose are shown."""

from itertools import count

import pytest

from antiphon.core.messages import dead_letters
from antiphon.core.messages.dead_letters import DeadLetters
from antiphon.core.messages.register import DEAD_MS, Note


class Dead:
    """Letters as their registers tell of them."""

    def __init__(self) -> None:
        self.letters = DeadLetters()
        self._numbers = count(1)

    def add(self, party: str, size: int = 10) -> str:
        """One more, the newest; whatever makes room for it is gone."""
        for old in self.letters.surplus(size):
            self.letters.drop(old.id)
        number = next(self._numbers)
        note = Note(sender=party, party=party, size=size, dead="expired", dead_ms=number)
        self.letters.apply(f"m{number}", number, note)
        return f"m{number}"

    def shown(self, limit: int = 64, most_bytes: int = 1_000, now_ms: int = 0) -> list[str]:
        return [one.id for one in self.letters.newest(limit, most_bytes, now_ms)]


def test_where_not_all_are_shown_parties_take_turns():
    dead = Dead()
    mine = dead.add("friend")
    spam = [dead.add("spammer") for _ in range(9)]
    assert dead.shown(limit=4) == [mine, *spam[-3:]], "the newest of each, oldest first"
    assert dead.shown(most_bytes=30) == [mine, *spam[-2:]]
    assert dead.shown(now_ms=DEAD_MS + 1) == spam, "what the store forgets is left out"


@pytest.mark.parametrize("bound, most", [("MAX_DEAD", 5), ("MAX_DEAD_BYTES", 50)])
def test_whoever_has_most_makes_room(monkeypatch, bound, most):
    monkeypatch.setattr(dead_letters, bound, most)
    dead = Dead()
    mine = dead.add("friend")
    spam = [dead.add("spammer") for _ in range(9)]
    assert dead.shown() == [mine, *spam[-4:]]
    more = [dead.add("friend") for _ in range(3)]
    assert len(dead.shown()) == 5
    assert set(dead.shown()) >= {more[-1], spam[-1]}
