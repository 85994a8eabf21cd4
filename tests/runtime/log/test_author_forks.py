"""An author in a forked child: it signs nothing, and its clock mark is not touched."""

import pytest

from antiphon.runtime.identity.host_clock import SystemClock
from antiphon.runtime.identity.key_files import FileMark, SeedKeyring
from antiphon.runtime.log.author import Author
from tests.forked import in_child
from tests.runtime.log.test_author import a_body, a_proof

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    "use",
    [
        lambda author: author.tick(),
        lambda author: author.vouch("text/plain", b"words"),
        lambda author: author.prove(a_body(), a_proof()),
    ],
    ids=["tick", "vouch", "prove"],
)
def test_a_child_does_not_sign_with_its_parents_clock(use, tmp_path):
    mark = FileMark(tmp_path / "client-1.mark")
    author = Author("m" * 16, SeedKeyring(b"k" * 32), SystemClock(), max_drift_ms=2_000, mark=mark)
    author.tick()
    before = (tmp_path / "client-1.mark").read_text()
    assert in_child(lambda: use(author)).startswith("Forked: ")
    assert in_child(author.settle) == "None"
    assert (tmp_path / "client-1.mark").read_text() == before
    assert use(author)
