"""What every process of ours tells Prometheus, written and served one way."""
