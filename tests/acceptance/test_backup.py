"""`docs/backup.md`, typed as it stands there, on the machine that hosts a mesh."""

import pytest

from tests.acceptance.typed_page import ROOT, Reader


@pytest.mark.nats
def test_the_page_works_as_typed(tmp_path):
    with Reader(tmp_path) as person, person.shell("").init("--name", "shop"):
        (tmp_path / "passphrase").write_text("correct horse battery staple\n")
        person.follow((ROOT / "docs/backup.md").read_text())
        assert (tmp_path / "restored" / "mesh.json").is_file()
