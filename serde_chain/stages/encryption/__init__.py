"""Authenticated encryption, on cryptography."""
