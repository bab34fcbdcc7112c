"""The peer's own command line, built from its Go module."""
