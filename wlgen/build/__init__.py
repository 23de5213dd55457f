"""A build: from a spec to a proved set on disk, and from a set back to the token ids of its rows.

What other rooms import of it:
build      builds, repairs and takes the parts of a set
ready      a spec with all that its text depends on loaded
outline    what `wlgen plan` says before anything is built
recall     the prompt ids of a built set, composed again
recompose  the bytes that a set must have, for `wlgen verify`
"""
