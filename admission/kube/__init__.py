"""Client, informers and leader lease: the only package that imports `kubernetes`."""
