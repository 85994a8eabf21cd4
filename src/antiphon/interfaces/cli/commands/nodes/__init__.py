"""Commands that run a worker or a full node, and the one that lists them."""
