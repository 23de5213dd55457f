"""copy: write a passage of the prompt again, so that speculative decoding accepts long runs of drafts.

... story | "Copy the passage below word for word" | passage | "Now write the passage again."
"""

from __future__ import annotations

from pathlib import Path

from wlgen.pages import ceil_to
from wlgen.streams import Coordinates, part
from wlgen.strict.model import Strict
from wlgen.text.english import SENTENCE_TOKENS
from wlgen.text.lexicon import Chunk, Lexicon

ACCEPTANCE = "a draft model predicts a copied passage easily, so it is higher than on people's prompts"

# Both texts begin with the full stop of the sentence before them, since ".\n\n" may be one token.
_ASK = ".\n\nCopy the passage below word for word, from its first word to its last. Add nothing.\n\nPassage:"
_CLOSE = ".\n\nNow write the passage again, word for word."


class Options(Strict):
    """A copy has no options."""


class Copy:
    """A row's own part ends with an instruction, a passage of at least output_len tokens and a request."""

    proved = True
    content_sha256 = None

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._ask = lexicon.fixed(_ASK)
        self._close = lexicon.fixed(_CLOSE)

    def least_own(self, output_len: int) -> int:
        """Return the tokens of both instructions and the passage, and 1 for the shortest story."""
        return len(self._ask.ids) + _passage_len(output_len) + len(self._close.ids) + 1

    def shared(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return random sentences."""
        return self._lexicon.prose(stream, tokens)

    def own(self, stream: Coordinates, tokens: int, output_len: int) -> Chunk:
        """Return story, instruction, passage, instruction."""
        story = self._lexicon.prose_to_stop(part(stream, "story"), tokens - self.least_own(output_len) + 1)
        passage = self._lexicon.prose_to_stop(part(stream, "passage"), _passage_len(output_len))
        return story.append(self._ask).append(passage).append(self._close)


def _passage_len(output_len: int) -> int:
    """Return the length of the fewest whole sentences, less the last full stop, with output_len tokens."""
    return ceil_to(output_len + 1, SENTENCE_TOKENS) - 1


def make(options: Options, lexicon: Lexicon, *, place: str, folder: Path) -> Copy:
    """Return the task for a lexicon."""
    del options, place, folder
    return Copy(lexicon)
