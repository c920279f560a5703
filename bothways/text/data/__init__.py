"""Reading data: files, tables and datasets -> labelled examples. No torch."""
