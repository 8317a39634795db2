"""HTTP: jobs in, their state out; dead letters, replays, queues, health and metrics."""
