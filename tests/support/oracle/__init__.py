"""The broker as oracle: real messages leave real queues, and where they went is compared with the linter.

Nothing here asks `topology.lint` how RabbitMQ behaves: only its value types are used.
"""
