"""What only the coordinator writes, and every full node can derive again from the log.

waiting_jobs        which waiting job may begin next, in turns by party
limit_use           how much room there is under a label
offer_derivation    what is written about a job that waited: an offer with results, or why not
quorum_derivation   what is written about a job with replicas
quorum_turns        which of those jobs is looked at next, and whose replicas wait
party_record        who agreed with whom among those replicas
plan_authority      whether a plan's author may still submit what it plans
plan_selection      which plans are run
derived_use         how many jobs the coordinator wrote for each party lately
missed_ticks        which ticks of a plan are made up for

All of it is pure; `runtime/coordinator` and `runtime/plans` write it and compare it.
"""
