"""`bench graph`: a large graph with a diamond, a failure and a limit, through a coordinator."""
