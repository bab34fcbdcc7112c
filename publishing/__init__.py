"""Files that are made from the code for others: the Helm chart, the Grafana dashboard, the reference in the docs.

Not installed with Muster and imported by nothing that runs: programs for whoever changes Muster.
"""
