"""What the coordinator alone writes or purges, and every full node can derive again from the log.

waiting_jobs        which waiting job may begin next, in turns by party
limit_use           how much room there is under a label
offer_derivation    what is written about a job that waited: an offer with results, or why not
given_results       the other end of it: those results as the inputs of the job that is run
quorum_derivation   what is written about a job with replicas
quorum_turns        which of those jobs is looked at next, and whose replicas wait
party_record        who agreed with whom among those replicas
plan_authority      whether a plan's author may still submit what it plans
plan_selection      which plans are run
derived_use         how many jobs the coordinator wrote for each party lately
missed_ticks        which ticks of a plan are made up for
purge_plan          which requests purge the lanes that an archive emptied

All of it is pure; `runtime/coordinator` and `runtime/plans` write it and compare it.
"""
