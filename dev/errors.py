"""The root of this package's errors. Each message names the object, what was seen, and what to do next."""


class DevError(Exception):
    """Something about the development set-up is wrong; the message is for the person at the terminal."""
