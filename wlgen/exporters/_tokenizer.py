"""A tokenizer folder that clients can load: some insist on one, and on a chat template in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from wlgen.exporters import File, Target

FOLDER = "tokenizer"
# Contents one after another: for the client's own length estimate only. What the server encodes is its
# own rendering, or the ids where the rows carry them.
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def files(target: Target) -> Iterator[File]:
    """Yield tokenizer.json and a tokenizer_config.json with a trivial template, for AutoTokenizer."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 2**31,
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }
    yield f"{FOLDER}/tokenizer.json", iter((target.tokenizer,))
    yield f"{FOLDER}/tokenizer_config.json", iter((orjson.dumps(config, option=orjson.OPT_INDENT_2),))
