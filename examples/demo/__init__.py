"""A busy hour of a real GPU cluster, in small, and an auditor that believes the API server alone."""
