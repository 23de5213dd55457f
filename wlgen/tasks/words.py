"""words: uniformly random words, the hard case for a draft model."""

from __future__ import annotations

from pathlib import Path

from wlgen.streams import Coordinates
from wlgen.strict.model import Strict
from wlgen.text.lexicon import Chunk, Lexicon

ACCEPTANCE = "a draft model can hardly predict random words, so it is lower than on people's prompts"


class Options(Strict):
    """Random words have no options."""


class Words:
    """Draws every token behind the first two independently."""

    proved = True
    content_sha256 = None

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon

    def least_own(self, output_len: int) -> int:
        """Return 0: this task has no least length."""
        del output_len
        return 0

    def shared(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return random words."""
        return self._lexicon.random_words(stream, tokens)

    def own(self, stream: Coordinates, tokens: int, output_len: int) -> Chunk:
        """Return random words."""
        del output_len
        return self._lexicon.random_words(stream, tokens)


def make(options: Options, lexicon: Lexicon, *, place: str, folder: Path) -> Words:
    """Return the task for a lexicon."""
    del options, place, folder
    return Words(lexicon)
