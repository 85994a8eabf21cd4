"""Other processes: those that end with us, and what the kernel says about any."""
