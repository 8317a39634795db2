"""Where messages can be lost or loop for ever: in a topology, a live broker or a definitions file."""
