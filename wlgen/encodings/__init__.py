"""Encodings: a tokenizer plus the chat framing of the server, head_ids + body_ids + tail_ids = prompt_ids.

An encoding is one module here with `Options` (a strict pydantic model of what a spec may set) and
`load(options, *, place) -> Encoding`, whose errors begin with `place`.

What other rooms import of it, beside the names below:
deepseek_v4  the encoding that is packaged with wlgen
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Message(NamedTuple):
    """One chat message as a client sends it."""

    role: str
    content: str


Render: TypeAlias = Callable[[Sequence[Message]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """What the server puts around the bodies of a conversation.

    texts, ids: the gaps. Gap i stands before message i, and one more gap ends the prompt; a single user
    message has two, the head and the tail. A token that holds text of a gap and of a body, or that another
    body would change, counts as the body's: texts[0] may be "[INST] " where ids[0] is "[INST]" alone.
    """

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """The tokens of all gaps: prompt_len minus body_len."""
        return sum(map(len, self.ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """A tokenizer, its file's sha256, and how the server renders messages.

    render: messages -> the text the server encodes (special tokens as text, none added afterwards).
    frame: roles -> the gaps around their contents; WlgenError if the template has no fixed gaps.
    chat: False for `raw`, whose text goes to a completions endpoint.
    server_kwargs: `chat_template_kwargs` that every request must carry for this framing to hold.
    """

    name: str
    tokenizer: Tokenizer
    tokenizer_sha256: str
    render: Render
    frame: Callable[[tuple[str, ...]], Framing]
    chat: bool = True
    server_kwargs: Mapping[str, object] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a rendered text, as the server encodes it."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the server's ids for a whole conversation, with which every promise is compared."""
        return self.encode(self.render(messages))

    def proof(self) -> dict[str, object]:
        """Return what a manifest keeps of the encoding: the tokenizer's hash and a message's framing."""
        framing = self.frame(("user",))
        return {
            "name": self.name,
            "tokenizer_sha256": self.tokenizer_sha256,
            "head_ids": list(framing.ids[0]),
            "tail_ids": list(framing.ids[-1]),
            "chat": self.chat,
            "server_kwargs": dict(self.server_kwargs),
        }
