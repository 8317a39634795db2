"""The story of `make demo`: what Redrive promises, seen happening through its HTTP API and commands."""

from dev.story.scenario import main

__all__ = ["main"]
