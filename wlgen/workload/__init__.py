"""The set on disk: rows, the manifest that proves them, how files are written, and which text is safe."""
