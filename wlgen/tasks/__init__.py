"""Tasks: what the text of a request asks for.

A task is one module here with `Options` (a strict pydantic model of what a spec may set) and
`make(options, lexicon, place, folder) -> Task`; and, where it reads text from outside of the spec,
`content_sha256(options, place, folder) -> str`, the hash of that text as it is now. Errors begin with
`place`; relative files stand in `folder`.
"""

from __future__ import annotations

from typing import Protocol

from wlgen.streams import Coordinates
from wlgen.text.lexicon import Chunk


class Task(Protocol):
    """Fills streams behind their first two tokens. All quantities are tokens."""

    proved: bool  # every join is between atoms; False: each row's own part must be encoded to be proved
    content_sha256: str | None  # of the text that it read from outside of the spec

    def least_own(self, output_len: int) -> int:
        """Return the least tokens of a row's own part (behind its first two) that fit `output_len`."""

    def shared(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return the first tokens of a shared stream: fewer tokens are always the start of more."""

    def own(self, stream: Coordinates, tokens: int, output_len: int) -> Chunk:
        """Return a row's own part; it ends a body, so it does not end in white space."""
