"""Replay and what-if with the very core that decides in the cluster."""
