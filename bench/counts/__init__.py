"""`bench counts`: what a job costs, counted instead of timed, against a recorded baseline."""
