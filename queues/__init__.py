"""The queue side of Muster: it knows nothing of Kubernetes' HTTP."""
