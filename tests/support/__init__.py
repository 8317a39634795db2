"""Real servers, real processes and waiting with a deadline, for tests."""
