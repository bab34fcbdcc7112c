"""One adapter per kind of job: to a Workload and back (suspend, gate, release). Pure, no I/O."""
