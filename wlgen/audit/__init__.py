"""An audit: the rows of a set beside the results of a run, and each promise for each request."""
