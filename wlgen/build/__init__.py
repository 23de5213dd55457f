"""A build: from a spec to a proved set on disk, and from a set back to the token ids of its rows.

What other rooms import of it:
build      builds a set, repairs it, and copies parts of it that were built elsewhere
ready      a spec, with everything loaded on which its text depends
outline    what `wlgen plan` says before anything is built
recall     the prompt ids of a built set, composed again
recompose  the bytes that a set must have, for `wlgen verify`
"""
