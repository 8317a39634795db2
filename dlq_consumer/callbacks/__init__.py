"""Tells whom a submission named that its job has ended."""
