"""Verification: a built set proved in two levels, each of which says what it proves and against whom.

`verify_composed` compares each row, byte for byte, with what the spec composes to, and replays the composed
ids. It finds a damaged disk, a mistake, and a forger who changed the hashes too: no text but the spec's own
passes. `verify_encoded` (`--full`) takes nothing from the build: it encodes each text whole with the
reference tokenizer and replays those ids, so it finds a fault of composing itself.
"""

from wlgen.verify.by_composing import Composition as Composition
from wlgen.verify.by_composing import verify_composed as verify_composed
from wlgen.verify.by_encoding import verify_encoded as verify_encoded
from wlgen.verify.model import Verification as Verification
