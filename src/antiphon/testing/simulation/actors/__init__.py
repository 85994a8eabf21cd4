"""Who acts in a simulated cluster: machines, callers, the owner, and guests of other families."""
