"""What the kernel says about processes: read by the sandbox and by the executors alike."""
