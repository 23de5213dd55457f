"""Reports of an audit: JSON values, a terminal's tables, and one self-contained page."""
