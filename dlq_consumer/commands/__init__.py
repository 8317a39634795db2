"""The `dlq` command, one file for each group of subcommands."""
