"""Where the pods of a gang go: the domain tree and placement in it."""
