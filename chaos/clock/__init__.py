"""`chaos clock`: the clocks of workers, callers and full nodes jump and drift while jobs run.

Here live the fake clocks, the jumps that are drawn, the processes that run under such clocks, and
what is measured of each.
"""
