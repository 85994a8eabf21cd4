"""The log on JetStream: streams, appending, reading, following, queues and leases."""
