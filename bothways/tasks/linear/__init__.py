"""Linear models of texts for fine-tuning: heads on a frozen encoder, baselines, models of few rows."""
