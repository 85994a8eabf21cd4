"""A simulated mesh that only keeps time: candidates for the pulse, and many that listen."""
