"""A build: from a spec to a proved set on disk, and from a set back to the token ids of its rows."""
