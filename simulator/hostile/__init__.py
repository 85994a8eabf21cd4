"""The hostile member of a simulated cluster, and everything it tries."""
