"""The spec: the YAML that a person writes, read into one validated `Spec`."""
