"""The loop around the core: observe the cluster, decide, write the decisions down and keep queue statuses true."""
