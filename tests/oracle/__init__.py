"""Slow, obvious references: they say what the fast code has to answer, and share none of it."""
