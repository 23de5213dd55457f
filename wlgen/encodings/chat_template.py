"""A chat template: the tokenizer and Jinja template of a folder or hub id, rendered by transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import Field, JsonValue

from wlgen.encodings import Encoding, Framing, Message
from wlgen.encodings._framing import find_framing
from wlgen.encodings._loading import load_tokenizer
from wlgen.encodings._template_checks import Dicts, check_date, check_kwargs, check_parts, try_roles
from wlgen.encodings.deepseek_v4 import USER
from wlgen.errors import error
from wlgen.strict.model import Strict, key


class Options(Strict):
    """What a spec may say of a model with a chat template."""

    path: Annotated[str, Field(min_length=1)] = key(
        "A folder with tokenizer.json and a chat template, or a hub id. ~ and $VARIABLES are expanded.",
        example="/models/qwen3-8b",
    )
    revision: str | None = key(
        "The branch, tag or commit of a hub id. A folder has none.", example="main", default=None
    )
    template_kwargs: dict[str, JsonValue] = key(
        "Variables of the template. Every request must carry them as chat_template_kwargs, and exports write "
        "them.",
        example="{enable_thinking: false}",
        default={},
    )


def load(options: Options, *, place: str) -> Encoding:
    """Return the encoding; WlgenError if the tokenizer or template cannot be loaded, or a kwarg is unknown.

    Its frame raises WlgenError for a template without fixed text around the messages.
    """
    loaded, sha256 = load_tokenizer(options.path, options.revision, place=place)
    template = _template(loaded, place)
    check_kwargs(loaded, template, options.template_kwargs, place)

    def apply(dicts: Dicts) -> str:
        text: str = loaded.apply_chat_template(
            dicts, tokenize=False, add_generation_prompt=True, **options.template_kwargs
        )
        return text

    def render(messages: Sequence[Message]) -> str:
        return apply([m._asdict() for m in messages])

    @cache
    def frame(roles: tuple[str, ...]) -> Framing:
        marked = try_roles(render, roles, place)
        check_parts(apply, roles, marked, place)
        check_date(render, template, roles, place)
        tokenizer = loaded.backend_tokenizer
        ids = tokenizer.encode(marked, add_special_tokens=False).ids
        if loaded.encode(marked, add_special_tokens=False) != ids:
            found = f"{type(loaded).__name__}, which encodes in its own way"
            raise error(place, expected="a tokenizer that encodes as its tokenizer.json says", found=found)
        return find_framing(render, tokenizer, roles, place=place)

    return Encoding(
        name="chat-template",
        tokenizer=loaded.backend_tokenizer,
        tokenizer_sha256=sha256,
        render=render,
        frame=frame,
        server_kwargs=options.template_kwargs,
    )


def _template(loaded: Any, place: str) -> str:
    try:
        template: str = loaded.get_chat_template()
    except ValueError as failure:
        named = loaded.chat_template
        found = f"templates named {', '.join(named)}, and no default" if named else "none"
        remedy = (
            "For DeepSeek V4 write {name: deepseek-v4}: its servers need no template."
            if loaded.backend_tokenizer.token_to_id(USER) is not None
            else "Copy the served model's chat_template.jinja into the folder, or send prompts without one: "
            "{name: raw, path: ...}."
        )
        raise error(
            place, expected="a tokenizer with a chat template", found=found, remedy=remedy
        ) from failure
    return template
