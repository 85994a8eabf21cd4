"""One simulated cluster: the real core and runtime on the memory engine, in virtual time.

    world       the cluster: server, mesh, machines, and how a run goes from chaos to quiet
    machines    what lives on a machine and how it starts, dies and comes back
    network     what happens to messages, by the weather
    workload    who calls which jobs, and what their handlers do
    adversary   the schedule of faults
    hostile     a member that writes whatever harms
    facts       a record read without the core
    referee     every commit judged on the spot, and handed to the laws
    laws        the invariants that hold at every record
    audit       the invariants that are checked when all is quiet
    story       a lane as a person reads it

`antiphon.testing.simulate` runs seeds; `antiphon.testing.mutants` shows that the laws bite.
"""
