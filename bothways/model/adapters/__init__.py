"""Adapters: a few trained parameters beside a model that stays as it is."""
