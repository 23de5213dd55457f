"""Text whose tokens are known: English words that stay one token whatever stands beside them."""
