"""Measures: pure functions of rows, attribute vectors and a network, and their result classes."""
