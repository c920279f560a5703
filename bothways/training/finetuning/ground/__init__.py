"""The ground of fine-tuning: files that know no plan of a run. Scores, baselines, time, and models of few rows."""
