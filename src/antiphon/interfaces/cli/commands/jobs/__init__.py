"""Commands about jobs: submit and run them, look at them, wait, cancel, retry."""
