"""Executors, each timed against a base on the same arrays in the same rounds."""
