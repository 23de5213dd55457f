"""Raw text: the prompt of a completions endpoint, without a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from wlgen.encodings import Encoding, Framing, Message
from wlgen.encodings._framing import PROBES, find_framing, vocabulary_probes
from wlgen.encodings._loading import load_tokenizer
from wlgen.encodings.deepseek_v4 import packaged_tokenizer
from wlgen.errors import error
from wlgen.strict.model import Strict, key

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Options(Strict):
    """What a spec may say of raw prompts."""

    path: Annotated[str, Field(min_length=1)] | None = key(
        "A folder with tokenizer.json, or a hub id. ~ and $VARIABLES are expanded. Left out, the packaged "
        "tokenizer of DeepSeek V4 is used.",
        example="/models/qwen3-8b",
        default=None,
    )
    revision: str | None = key(
        "The branch, tag or commit of a hub id. A folder has none.", example="main", default=None
    )
    add_special_tokens: bool = key(
        "Whether the server puts the tokenizer's BOS or EOS around a prompt. The completions endpoints of "
        "SGLang and of vLLM, which has a request field of this name, do so by default.",
        example="true",
        default=False,
    )


def load(options: Options, *, place: str) -> Encoding:
    """Return the encoding of prompts that are one user message, whose content is sent as it is."""
    if options.path is None:
        tokenizer, sha256 = packaged_tokenizer()
    else:
        loaded, sha256 = load_tokenizer(options.path, options.revision, place=place)
        tokenizer = loaded.backend_tokenizer
    before, after = _special_texts(tokenizer, place) if options.add_special_tokens else ("", "")

    def render(messages: Sequence[Message]) -> str:
        (message,) = messages
        return before + message.content + after

    @cache
    def frame(roles: tuple[str, ...]) -> Framing:
        if roles != ("user",):
            expected = "one user message: a raw prompt has no roles"
            raise error(place, expected=expected, found=", ".join(roles) or "no message")
        return find_framing(render, tokenizer, roles, place=place)

    return Encoding(
        name="raw", tokenizer=tokenizer, tokenizer_sha256=sha256, render=render, frame=frame, chat=False
    )


def _special_texts(tokenizer: Tokenizer, place: str) -> tuple[str, str]:
    """Return the texts to write around a prompt so that it is encoded as with the post-processor's tokens.

    Some tokenizers put a space before a text's first word, but not behind a special token: the prompt "The"
    is then to be written "<s> The".
    """
    probes = [*PROBES, *vocabulary_probes(tokenizer)]
    wanted = [e.ids for e in tokenizer.encode_batch(probes, add_special_tokens=True)]
    first = tokenizer.encode(probes[0], add_special_tokens=True)
    added = list(zip(first.tokens, first.special_tokens_mask, strict=True))
    before = "".join(token for token, mask in takewhile(lambda pair: pair[1], added))
    after = "".join([token for token, mask in takewhile(lambda pair: pair[1], reversed(added))][::-1])
    for space in ("", " "):
        texts = [before + space + probe + after for probe in probes]
        if [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)] == wanted:
            return before + space, after
    raise error(
        f"{place}.add_special_tokens",
        expected="a tokenizer whose BOS and EOS can be written as text",
        found=f"{before!r} and {after!r}, which change the tokens of the prompt beside them",
        remedy="Set add_special_tokens: false, and send token ids.",
    )
