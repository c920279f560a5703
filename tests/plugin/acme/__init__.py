"""A package of someone else, which adds one of each kind to Bothways (tests/test_plugins.py).

The folder acme_bothways-1.0.dist-info beside it has the entry points, as an installer writes them.
"""
