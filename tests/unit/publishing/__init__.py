"""Files that are made for others."""
