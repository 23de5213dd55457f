"""The differences between the engines' HTTP servers, as one value that each file of this folder holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from wlgen.rehearse.ranks import Rank
from wlgen.rehearse.settings import Settings

Kind: TypeAlias = Literal["chat", "completion", "generate"]


class RefusedError(Exception):
    """An answer that is an error: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one engine's server reads and answers.

    Reading a request, from its JSON fields and its headers:
    ids_field: the key of token ids beside a chat or /generate text; None if the engine takes no ids.
    rank_of: returns the rank to which a request is pinned, None for none; RefusedError if the engine refuses
    it.
    name_of: returns the id that the client gave the request, None for none.
    part_break: what joins the text parts of one message.
    detail_field: the key that asks for cached tokens by tier; None if the engine has no such key.
    meta_field: the key that asks for /generate's meta_info in a chat choice; None if the engine has no such
    key.
    streams_ids: whether a chat stream may ask for return_token_ids.
    any_model: whether the server serves a request for a model of another name.
    thinks: whether DeepSeek V4 is framed in thinking mode unless the request says otherwise.
    in_turn: whether unpinned requests go to the ranks in turn; if not, to the least loaded rank.

    Answering:
    id_prefix: what stands before a request's id, by kind of route.
    ends_apart: whether the finish reason has an event of its own, after the last token.
    output_ids_key: the chat choice's key of output ids. prompt_ids_on_top: whether the prompt's ids stand
    beside the choices.
    more_usage, more_choice, more_answer: further keys of usage, of each choice and of a whole answer.
    refusal: makes the body of an error from kind of route, message, type and status.
    pages: makes the pages of facts, path -> content, from the settings and the ranks.
    flush_page: the path to POST to. flush_waits: whether it takes `timeout=SECONDS` and answers 400 while
    busy; if not, it answers {"success": false}.
    metrics: the lines of /metrics: (name, type, [(labels, value)]), given when the server started, in seconds
    since 1970.
    metrics_by_flag: whether the server has /metrics only with --enable-metrics.
    """

    ids_field: str | None
    rank_of: Callable[[Mapping[str, Any], Mapping[str, str], Kind], int | None]
    name_of: Callable[[Mapping[str, Any], Mapping[str, str]], str | None]
    part_break: str
    detail_field: str | None
    meta_field: str | None
    streams_ids: bool
    any_model: bool
    thinks: bool
    in_turn: bool
    id_prefix: Mapping[Kind, str]
    ends_apart: bool
    output_ids_key: str
    prompt_ids_on_top: bool
    more_usage: Mapping[str, Any]
    more_choice: Mapping[str, Any]
    more_answer: Mapping[str, Any]
    refusal: Callable[[str, str, str, int], dict[str, Any]]
    pages: Callable[[Settings, Sequence[Rank]], dict[str, Any]]
    flush_page: str
    flush_waits: bool
    metrics: Callable[
        [Settings, Sequence[Rank], float], list[tuple[str, str, list[tuple[dict[str, str], float]]]]
    ]
    metrics_by_flag: bool
