"""A real Kubernetes control plane on loopback, built from Go modules: no root, no containers."""
