"""Typed objects of the Kubernetes and Kueue APIs; the CRDs are generated from them. Data only, no I/O."""
