"""Answers in the engines' shapes: OpenAI chat and completions, whole or as events, and /generate."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson

from wlgen.rehearse.acting import Treatment
from wlgen.rehearse.asks import Ask
from wlgen.rehearse.dialects import Dialect
from wlgen.rehearse.filler import Filler
from wlgen.rehearse.settings import SIMULATION, Ids

DONE = b"data: [DONE]\n\n"
_OBJECTS = {"chat": "chat.completion", "completion": "text_completion"}


@dataclass(kw_only=True, slots=True)
class Answer:
    """One answer. Call `first`, then `events` for each stretch of tokens, then `last`; or only `whole`.

    prompt: what the answer counts. met: what meets the cache, which a fault may have changed.
    usage: whether the answer has usage. cached: whether usage has cached tokens, as /generate always has.
    omit_zero: whether usage has cached tokens only if they are above 0.
    """

    ask: Ask
    model: str
    dialect: Dialect
    rank: int
    prompt: Ids
    met: Ids
    filler: Filler
    usage: bool
    cached: bool
    omit_zero: bool
    treatment: Treatment | None = None
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.id = f"{self.dialect.id_prefix[self.ask.kind]}{self.ask.name or uuid.uuid4().hex}"

    def first(self) -> bytes:
        """Return what a chat stream sends before any token (nothing on other routes)."""
        if self.ask.kind != "chat":
            return b""
        chunk = self._chunk([self._choice({"role": "assistant", "content": ""}, None)])
        if self.ask.return_token_ids:
            chunk["prompt_token_ids"] = self.prompt.tolist()
        return event(chunk)

    def events(self, start: int, stop: int, cached_len: int) -> bytes:
        """Return the events of output tokens start to stop, one event for each token."""
        if self.ask.kind == "generate":
            return b"".join(event(self._generated(n + 1, cached_len)) for n in range(start, stop))
        return b"".join(event(self._token(n)) for n in range(start, stop))

    def last(self, cached_len: int) -> bytes:
        """Return a stream's end: the finish reason if it has its own event, usage if asked for, [DONE]."""
        ending = b""
        if self.dialect.ends_apart and self.ask.kind != "generate":
            ending += event(self._chunk([self._choice({}, "length")]))
        if self.ask.cached_details and self.cached and cached_len and self.ask.kind != "generate":
            ending += event(self._chunk([]) | {"sglext": _sglext(cached_len)})
        if self.ask.include_usage and self.usage and self.ask.kind != "generate":
            ending += event(self._chunk([]) | {"usage": self._usage(cached_len)})
        return ending + DONE

    def whole(self, cached_len: int) -> bytes:
        """Return the answer of a request that does not stream."""
        tokens = self.ask.output_len
        if self.ask.kind == "generate":
            return orjson.dumps(self._generated(tokens, cached_len))
        text = self.filler.text(0, tokens)
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        if self.ask.kind == "completion":
            content = {"text": text}
        choice: dict[str, Any] = {"index": 0, **content, "logprobs": None, "finish_reason": "length"}
        choice |= self.dialect.more_choice
        answer = self._chunk([choice]) | {"object": _OBJECTS[self.ask.kind], "simulation": True}
        answer |= self.dialect.more_answer
        if self.usage:
            answer["usage"] = self._usage(cached_len)
        if self.ask.cached_details and self.cached and cached_len:
            answer["sglext"] = _sglext(cached_len)
        if self.ask.meta_info and self.ask.kind == "chat":
            choice["meta_info"] = self._meta(tokens, cached_len)
        if self.ask.return_token_ids:
            chat = self.ask.kind == "chat"
            choice[self.dialect.output_ids_key if chat else "token_ids"] = self.filler.ids(tokens).tolist()
            where = answer if chat and self.dialect.prompt_ids_on_top else choice
            where["prompt_token_ids"] = self.prompt.tolist()
        return orjson.dumps(answer)

    def _token(self, n: int) -> dict[str, Any]:
        ends = n + 1 == self.ask.output_len and not self.dialect.ends_apart
        piece = self.filler.text(n, n + 1)
        choice = self._choice({"content": piece}, "length" if ends else None)
        if self.ask.return_token_ids:
            choice["token_ids"] = self.filler.ids(n + 1)[n:].tolist()
            if n == 0 and self.ask.kind == "completion":
                choice["prompt_token_ids"] = self.prompt.tolist()
        return self._chunk([choice])

    def _choice(self, delta: dict[str, str], finish_reason: str | None) -> dict[str, Any]:
        said = {"delta": delta} if self.ask.kind == "chat" else {"text": delta.get("content", "")}
        end = {"logprobs": None, "finish_reason": finish_reason}
        return {"index": 0, **said, **end, **self.dialect.more_choice}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = _OBJECTS[self.ask.kind]
        return {
            "id": self.id,
            "object": "chat.completion.chunk" if self.ask.kind == "chat" else kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": SIMULATION,
            "choices": choices,
        }

    def _usage(self, cached_len: int) -> dict[str, Any]:
        prompt_len, output_len = len(self.prompt), self.ask.output_len
        usage: dict[str, Any] = {
            "prompt_tokens": prompt_len,
            "completion_tokens": output_len,
            "total_tokens": prompt_len + output_len,
            **self.dialect.more_usage,
        }
        if self.cached and (cached_len or not self.omit_zero):
            usage["prompt_tokens_details"] = {"cached_tokens": cached_len}
        return usage

    def _generated(self, tokens: int, cached_len: int) -> dict[str, Any]:
        """Return an answer of /generate, whose stream repeats the whole text so far."""
        meta = self._meta(tokens, cached_len)
        if not self.usage:
            meta = {key: meta[key] for key in ("id", "finish_reason", "simulation")}
        return {
            "text": self.filler.text(0, tokens),
            "output_ids": self.filler.ids(tokens).tolist(),
            "meta_info": meta,
        }

    def _meta(self, tokens: int, cached_len: int) -> dict[str, Any]:
        """Return SGLang's meta_info, whose cached_tokens_details are null if nothing was cached."""
        ends = tokens == self.ask.output_len
        return {
            "id": self.id,
            "finish_reason": {"type": "length", "length": tokens} if ends else None,
            "prompt_tokens": len(self.prompt),
            "completion_tokens": tokens,
            "cached_tokens": cached_len,
            "cached_tokens_details": _tiers(cached_len) if cached_len else None,
            "dp_rank": self.rank,
            "num_retractions": 0,
            "weight_version": "default",
            "simulation": SIMULATION,
        }


def _sglext(cached_len: int) -> dict[str, Any]:
    """Return what SGLang's own client reads: cached tokens by the memory tier that held them."""
    return {"cached_tokens_details": _tiers(cached_len)}


def _tiers(cached_len: int) -> dict[str, int]:
    return {"device": cached_len, "host": 0}


def event(content: dict[str, Any]) -> bytes:
    """Return one event of a stream."""
    return b"data: " + orjson.dumps(content) + b"\n\n"
