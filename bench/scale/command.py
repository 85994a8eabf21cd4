"""`bench scale`: the page's sums from the measured unit costs, and a hundred cells simulated."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import replace

from bench.measurement.report import conclude, say
from bench.scale import arithmetic, cells, measurements, page


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench scale")
    parser.add_argument("--quick", action="store_true", help="ten cells, for half a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="only make the page's parts anew")
    parser.add_argument(
        "--take", type=Path, action="append", default=[], help="what growth, load or this printed"
    )
    args = parser.parse_args(argv)
    for file in args.take:
        say(f"{file}: {measurements.take(file.read_text())}")
    if args.write or args.take:
        page.write()
        return 0
    costs = arithmetic.unit_costs()
    say(arithmetic.table(costs))
    capacity = arithmetic.most_jobs_per_s(costs)
    whole = cells.World(capacity_per_s=capacity, seed=args.seed)
    if args.quick:
        whole = replace(whole, cells=10, kinds=50, capacity_per_s=capacity / 10)
    outcomes = {}
    for name, by_share in (("few", False), ("by_share", True)):
        outcomes[name] = cells.simulate(replace(whole, by_share=by_share))
        say(f"{name}: {outcomes[name]}")
    million = arithmetic.cells_for(costs, 1_000_000, 100_000)
    one = arithmetic.cell(costs, 1_000_000 // million, 100_000 / million)
    conclude(
        cells_for_a_million=million,
        jobs_per_s_of_a_cell=round(one.jobs_per_s),
        server_cores=round(one.server_cores * million, 1),
        node_cores=round(one.node_cores, 2),
        dollars_a_month=round(arithmetic.dollars_a_month(one, million)),
        **{
            f"{name}_{key}": getattr(found, key)
            for name, found in outcomes.items()
            for key in found.__struct_fields__
        },
    )
    return 0
