"""Exporters: one short file a client; pure, rows in, (name, bytes) out."""
