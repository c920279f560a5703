"""Decisions: options named when one asks, read together with the text."""
