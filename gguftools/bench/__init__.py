"""Measures a pair length by length, and finds its best settings."""
