"""Who is above a delegation, and what it costs to ask."""

import sys
from random import Random

import pytest

from antiphon.core.authority import delegations
from antiphon.core.authority.delegations import Grants
from antiphon.core.ucan import MAX_LINKS
from tests.core.authority.test_chain_check import delegation
from tests.core.authors import Author
from tests.examples import size

KEYS = [Author(f"key {number}") for number in range(2 * MAX_LINKS)]
ANY_TIME = 2**60


class Book:
    """Delegations between numbered keys, one after the other."""

    def __init__(self) -> None:
        self.grants = Grants()
        self.links: list[tuple[int, int, str]] = []

    def give(self, giver: int, holder: int) -> int:
        """The sequence of the new delegation."""
        seq = len(self.links) + 1
        made = delegation(KEYS[giver], KEYS[holder], nonce=b"nonce %08d" % seq)
        self.grants.grant(seq, made)
        self.links.append((giver, holder, made.cid))
        return seq

    def asked(self, key: int, seq: int, before: int = ANY_TIME) -> bool:
        return self.grants.is_above(KEYS[key].did, self.links[seq - 1][2], before=before)

    def truly(self, key: int, seq: int, before: int = ANY_TIME) -> bool:
        """The same by following every chain upwards."""
        known = self.links[: before - 1]
        if seq >= before:
            return False
        level = {self.links[seq - 1][0]}
        for _ in range(MAX_LINKS):
            if key in level:
                return True
            level = {giver for giver, holder, _ in known if holder in level}
        return False


@pytest.mark.parametrize("seed", range(size(6, soak=200)))
def test_whoever_issued_a_delegation_or_one_above_it_is_above_at_any_time(seed):
    chance, book = Random(seed), Book()
    keys = chance.choice((4, 10, len(KEYS)))
    for _ in range(60):
        giver = chance.randrange(keys)
        # Long chains, and everything else: circles, crowds, the same one twice.
        book.give(giver, (giver + 1) % keys if chance.random() < 0.6 else chance.randrange(keys))
        for _ in range(3):
            key, seq = chance.randrange(keys), 1 + chance.randrange(len(book.links))
            before = chance.choice((ANY_TIME, 1 + chance.randrange(len(book.links) + 1)))
            assert book.asked(key, seq, before) == book.truly(key, seq, before)


def test_a_chain_has_an_end():
    book = Book()
    for number in range(MAX_LINKS + 1):
        last = book.give(number, number + 1)
    assert book.asked(1, last)
    assert not book.asked(0, last), "no chain is that long"


def steps(work) -> int:
    """How many lines of the module are executed."""
    count = 0

    def traced(frame, event, _argument):
        nonlocal count
        if frame.f_code.co_filename != delegations.__file__:
            return None
        count += event == "line"
        return traced

    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def test_a_revocation_costs_the_same_however_many_delegate_to_its_issuer():
    """Also where delegations and revocations take turns."""
    hub, holder, nobody = Author("hub"), Author("holder"), Author("nobody")
    cost = {}
    for crowd in (20, 200):
        grants, last = Grants(), delegation(hub, holder)
        for number in range(crowd):
            grants.grant(number + 1, delegation(Author(f"early {number}"), hub))
        grants.grant(crowd + 1, last)
        late = [Author(f"late {number}") for number in range(20)]
        fresh = [delegation(one, hub) for one in late]
        assert not grants.is_above(nobody.did, last.cid, before=ANY_TIME)

        def turns(grants=grants, crowd=crowd, late=late, fresh=fresh, last=last):
            for number, one in enumerate(fresh):
                grants.grant(crowd + 2 + number, one)
                assert grants.is_above(late[number].did, last.cid, before=ANY_TIME)
                assert not grants.is_above(nobody.did, last.cid, before=ANY_TIME)

        cost[crowd] = steps(turns)
    assert cost[200] == cost[20]


def test_what_is_kept_of_those_above_is_bounded(monkeypatch):
    monkeypatch.setattr(delegations, "ABOVE_KEPT_KEYS", 40)
    book = Book()
    for number in range(10):
        book.give(number, 10)
    issued = [book.give(10 if number % 2 else number % 30, 31) for number in range(40)]
    for seq in issued:
        assert book.asked(0, seq) == book.truly(0, seq)
        assert sum(map(len, book.grants._above.values())) <= 40
