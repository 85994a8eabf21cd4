"""Commands about jobs: submit, run, list, show, wait for, cancel and retry them."""
