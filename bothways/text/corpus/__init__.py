"""Documents -> token store -> masked batches."""
