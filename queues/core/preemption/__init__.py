"""Who has to go: candidates and the search for the fewest victims."""
