"""Pictures of the management UI for the documents: `python -m dev.screenshots`."""
