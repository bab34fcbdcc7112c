"""Helm as the tests use it."""
