"""One file for each family of findings. A rule is a pure function from a broker to findings."""
