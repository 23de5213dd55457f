"""Export: a set's rows written as the files that one benchmark client reads."""
