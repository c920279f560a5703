"""Text regression: a number per text or text pair (STS-B in Devlin 2018, section 4.1)."""
