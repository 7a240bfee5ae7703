"""Numerical functions without finance."""
