"""The loop around the core: observe, decide, write, release."""
