"""Readers: one short file a client; pure, bytes in, results out, streaming."""
