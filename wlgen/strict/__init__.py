"""What people write, read strictly: YAML, models and ranges, each problem with its file and line."""
