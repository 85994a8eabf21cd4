"""`bench fairness`: who wins when jobs are drawn for, and what a dead winner costs."""
