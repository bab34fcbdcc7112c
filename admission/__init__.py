"""The Kubernetes side of Muster: everything that talks to the API server."""
