"""How fast models are here, beside other systems at the same work."""
