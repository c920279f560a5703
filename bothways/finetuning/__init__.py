"""Fine-tuning: one task a file, with baselines, linear start and a report."""
