"""One simulated cluster, from its seed to its audit.

command          runs seed after seed, and adds up what they come to
world            the cluster, and a run's phases: faults, healing, audit
seed_plan        what a seed decides: features, length, faults
grant_plan       who is granted what, by whom, and when that ends
fault_schedule   the faults: of processes, connections, the server, clocks and operators
final_audit      what is checked when all is quiet
punctuality      whether full nodes are in time
lane_story       a lane as a person reads it
"""
