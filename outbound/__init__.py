"""What is sent to URLs that others name: which may be reached, and a signed POST to one."""
