"""Fine-tuning a model for a task: one file a stage, with baselines, linear start and a report page."""
