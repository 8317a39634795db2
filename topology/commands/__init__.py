"""The `topology` command, a file for each of its subcommands."""
