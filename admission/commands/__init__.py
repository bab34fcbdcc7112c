"""What each `muster` command does; `admission.cli` only names them and their options.

A command imports what it needs when it is called, so that starting one never waits for the libraries of another.
"""
