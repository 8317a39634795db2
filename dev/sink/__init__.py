"""A webhook sink: takes alerts whose signature is right, and tells what it took."""
