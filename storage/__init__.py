"""What every process agrees on about Postgres: migrations, every query, row types."""
