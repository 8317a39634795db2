"""Groups, chains, chords, links: what follows a job, once for each of its ends."""
