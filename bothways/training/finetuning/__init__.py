"""Fine-tuning: one file per task, with baselines, linear start and a report page."""
