"""What is remembered in SQL: decisions, the read model of the queues, the usage ledger. Memory, never truth."""
