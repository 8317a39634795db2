"""What stands under `make`: the virtual environment, the servers, and the processes of a development run."""
