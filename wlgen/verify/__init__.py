"""Verification: a built set proved at one of two levels.

`verify_composed` compares each row, byte for byte, with what the spec composes to, and replays the composed
ids. It finds a damaged disk, a mistake, and a forgery with matching hashes: no other text than the spec's
passes. `verify_encoded` (`--full`) uses nothing of the build: it encodes each text whole with the reference
tokenizer and replays those ids, so that it also finds a fault in composing.
"""

from wlgen.verify.by_composing import Composition as Composition
from wlgen.verify.by_composing import verify_composed as verify_composed
from wlgen.verify.by_encoding import verify_encoded as verify_encoded
from wlgen.verify.model import Verification as Verification
