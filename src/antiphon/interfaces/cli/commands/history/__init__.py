"""What happened to one thing on the log: a job, a plan, or anything else with a name."""
