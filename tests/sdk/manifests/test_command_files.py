"""Which files of this machine a command names although nobody gave them to it."""

import pytest

from antiphon.errors import Misconfigured
from antiphon.sdk.command_files import Named, files_named


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("tool.sh", "rows.csv", "in/tool.sh"):
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "words, options, found",
    [
        (["./tool.sh"], {}, Named("tool.sh", "")),
        (["in/tool.sh", "-v"], {}, Named("in/tool.sh", "")),
        (["./tool.sh"], {"cwd": "in"}, Named("in/tool.sh", "")),
        (["./tool.sh"], {"inputs": ["./tool.sh"]}, Named("", "")),
        (["./made"], {"inputs": ["made"]}, Named("", "")),
        (["tool.sh"], {}, Named("", "")),  # looked for on PATH, as in a shell
        (["/usr/bin/env", "sh"], {}, Named("", "")),
        (["./tool.sh", "rows.csv"], {}, Named("tool.sh", "rows.csv")),
        (["wc", "./rows.csv"], {}, Named("", "rows.csv")),
        (["wc", "./rows.csv"], {"inputs": ["rows.csv"]}, Named("", "")),
        (["wc", "../rows.csv"], {"cwd": "in"}, Named("", "rows.csv")),
        (["sort", "-o", "rows.csv"], {"outputs": ["*.csv"]}, Named("", "")),
        (["ls", "in", "", "..", "../rows.csv", "none.csv", "x" * 5_000], {}, Named("", "")),
        (["sh", "-c", "wc -l < rows.csv"], {}, Named("", "")),  # a shell's business
    ],
)
def test_a_program_goes_along_and_an_argument_that_is_a_file_is_told(folder, words, options, found):
    assert files_named(words, folder, **options) == found


@pytest.mark.parametrize("program", ["./gone.sh", "../tool.sh", "in", "./" + "x" * 5_000])
def test_a_program_that_nobody_can_send_is_refused(folder, program):
    with pytest.raises(Misconfigured) as refused:
        files_named([f"./{program}"], folder)
    assert "--input" in refused.value.hint
