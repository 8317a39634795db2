"""What `apply` would change on a broker, and where it cannot without a migration."""
