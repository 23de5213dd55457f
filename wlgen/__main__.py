"""`python -m wlgen` is the command line."""

from wlgen.cli import main

main()
