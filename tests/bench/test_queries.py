"""`python -m bench queries`, small: every filter is asked, and the report has its keys."""

import json

from bench import queries


def test_every_filter_is_asked_and_the_report_says_what_pages_and_counters_cost(capsys):
    queries.main(["--jobs", "3000"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["jobs"] == 3_000
    assert report["pages"] == report["filters"] * (queries.PAGES + 1)
    assert {"page_p50_ms", "page_p99_ms", "counters_ms"} <= report.keys()
