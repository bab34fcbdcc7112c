"""The decisions: quota, flavors, order, preemption, topology, reasons. Pure: no clock, no randomness, no I/O."""
