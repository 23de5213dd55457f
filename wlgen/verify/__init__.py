"""Verification: a set proved from its files, by code that shares nothing with the build."""
