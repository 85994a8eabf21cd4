"""The actors of a simulated cluster: machines, submitters, the owner, guests of other families."""
