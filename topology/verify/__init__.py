"""Looks at a live broker, and sends probes through it, to tell whether a message can be lost on its ways."""
