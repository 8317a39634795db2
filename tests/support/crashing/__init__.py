"""Killing a process of ours at each place where it waits."""
