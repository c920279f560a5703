"""The page of the server: HTML, scripts and styles. No code."""
