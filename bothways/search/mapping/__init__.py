"""Vectors of one embedding model as vectors of another: a linear map between them, and what it loses."""
