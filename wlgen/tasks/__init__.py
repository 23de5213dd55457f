"""Tasks: what the text of a request asks for.

A task is one module here with `Options` (a strict pydantic model of what a spec may set), `ACCEPTANCE` (what
the acceptance length of speculative decoding is like on its texts, in a sentence without its end) and
`make(options, lexicon, place, folder) -> Task`. A task that reads files or data sets also has
`content_sha256(options, place, folder) -> str`, the hash of what they hold now. Errors begin with `place`;
relative paths start from `folder`.
"""

from __future__ import annotations

from typing import Protocol

from wlgen.streams import Coordinates
from wlgen.text.lexicon import Chunk


class Task(Protocol):
    """Writes the text of each stream behind the stream's first two tokens. All quantities are tokens.

    proved: whether texts consist of atoms, so that wlgen knows their tokens without encoding them; if not,
    the build encodes each row's own part. content_sha256: the hash of the text that the task read, or None.
    """

    proved: bool
    content_sha256: str | None

    def least_own(self, output_len: int) -> int:
        """Return the fewest tokens that a row needs behind its own first two, given its output_len."""

    def shared(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return the first `tokens` of a shared stream; a smaller number gives the start of a larger one."""

    def own(self, stream: Coordinates, tokens: int, output_len: int) -> Chunk:
        """Return a row's own part. The body ends with it, so it does not end in white space."""
