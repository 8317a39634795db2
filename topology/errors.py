"""The root of every error that `topology` raises."""


class TopologyError(Exception):
    """Something about the broker, or about what we agreed on with it, is not as it should be."""
