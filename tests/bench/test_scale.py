"""`bench scale`: the page's sums, and a simulation that shows what it says."""

import pytest
from msgspec.structs import replace

from bench.scale import arithmetic, measurements, page
from bench.scale.cells import World, simulate


def test_the_page_has_the_sums_of_the_measured_unit_costs():
    text = page.PAGE.read_text()
    assert page.made(text) == text, "python -m bench scale --write"


def test_the_pictures_are_what_the_measurements_say():
    drawn = page.pictures(measurements.measured())
    old = [
        name for name, text in drawn.items() if (page.PICTURES / f"{name}.svg").read_text() != text
    ]
    assert old == [], "python -m bench scale --write"


def test_a_run_takes_the_place_of_the_one_before_it():
    have = {"axes": {"plans": {"count": [1]}}, "load": [{"replicas": 3, "held_per_s": 1}]}
    for told in (
        {"replicas": 1, "held_per_s": 7},
        {"replicas": 3, "held_per_s": 9},
        {"jobs": 10, "axes": {"workers": {"count": [2]}}},
        {"cells_for_a_million": 5, "few_p50_s": 0.5},
    ):
        measurements.taken(have, told)
    assert [one["held_per_s"] for one in have["load"]] == [7, 9]
    assert set(have["axes"]) == {"plans", "workers"}
    assert (have["jobs"], have["cells"]) == ({"jobs": 10}, {"few_p50_s": 0.5})


def test_the_sums_start_from_what_was_measured_last():
    workers = {
        "idle_msgs_per_worker": 0.04,
        "server_us_per_worker_s": 30.0,
        "server_kb_per_worker": 512,
    }
    jobs = {"node_cpu_ms": [2.0, 1.0, 3.0], "mb_per_million": 1e3, "replica_mb_per_million": 5e3}
    told = jobs | {"axes": {"workers": workers}}
    costs = measurements.with_figures(arithmetic.unit_costs(), told, "2026-11-18")
    assert costs.node_ms_per_job.value == 2.0
    assert costs.server_mb_per_worker.value == 0.5
    assert arithmetic.cell(costs, 0, 1_000).replica_gb_day == pytest.approx(432)
    assert arithmetic.cell(costs, 0, 1_000).archive_tb_year == pytest.approx(31.536)
    assert arithmetic.cell(costs, 1_000, 0).server_cores == pytest.approx(0.03)
    assert arithmetic.cell(costs, 1_000, 0).idle_messages_per_s == pytest.approx(40)


def test_twice_the_work_of_a_job_on_a_full_node_is_half_of_what_a_cell_can_do():
    costs = arithmetic.unit_costs()
    slow = replace(
        costs, node_ms_per_job=replace(costs.node_ms_per_job, value=2 * costs.node_ms_per_job.value)
    )
    assert arithmetic.most_jobs_per_s(slow) == arithmetic.most_jobs_per_s(costs) / 2
    jobs = 100 * arithmetic.most_jobs_per_s(costs)
    assert arithmetic.cells_for(slow, 1_000, jobs) == 2 * arithmetic.cells_for(costs, 1_000, jobs)


@pytest.mark.parametrize("workers, each, cells", [(10, 10_000, 1), (1_000_000, 10_000, 100)])
def test_workers_fill_cells_where_there_are_few_jobs(workers, each, cells):
    assert arithmetic.cells_for(arithmetic.unit_costs(), workers, 1, each=each) == cells


def test_a_frequent_kind_needs_more_cells_than_the_others():
    world = World(cells=20, kinds=40, capacity_per_s=40, seconds=20.0, seed=1)
    few, by_share = (simulate(replace(world, by_share=how)) for how in (False, True))
    assert by_share.busiest < few.busiest
    assert by_share.p99_s < few.p99_s
    assert simulate(world) == by_share, "the same seed is the same run"
