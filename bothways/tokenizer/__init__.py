"""Text to ids and back. Loads no torch."""
