"""A chat template: the tokenizer and Jinja template of a folder or hub id, rendered by transformers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from functools import cache
from typing import Annotated, Any, TypeAlias

from pydantic import Field, JsonValue

from wlgen.encodings import Encoding, Framing, Message, Render
from wlgen.encodings._framing import conversation, find_framing, marked_bodies
from wlgen.encodings._loading import load_tokenizer
from wlgen.encodings.deepseek_v4 import USER
from wlgen.errors import Problem, WlgenError, error
from wlgen.registry import nearest
from wlgen.strict import Strict

Dicts: TypeAlias = list[dict[str, Any]]


class Options(Strict):
    """path: a folder with tokenizer.json and a chat template, or a hub id. revision: of the hub.

    template_kwargs: variables of the template, sent with every request as chat_template_kwargs.
    """

    path: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)


def load(options: Options, *, place: str) -> Encoding:
    """Return the encoding; WlgenError where the tokenizer or template cannot be had, or a kwarg is unknown.

    Its frame raises WlgenError for a template without fixed text around the messages.
    """
    loaded, sha256 = load_tokenizer(options.path, options.revision, place=place)
    template = _template(loaded, place)
    _check_kwargs(loaded, template, options.template_kwargs, place)

    def apply(dicts: Dicts) -> str:
        text: str = loaded.apply_chat_template(
            dicts, tokenize=False, add_generation_prompt=True, **options.template_kwargs
        )
        return text

    def render(messages: Sequence[Message]) -> str:
        return apply([m._asdict() for m in messages])

    @cache
    def frame(roles: tuple[str, ...]) -> Framing:
        marked = _tried(render, roles, place)
        _check_parts(apply, roles, marked, place)
        if "strftime_now" in template:
            _check_date(render, template, roles, place)
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


def _check_kwargs(loaded: Any, template: str, kwargs: Mapping[str, Any], place: str) -> None:
    """Refuse names that the template never reads: a mistyped one would frame, and ask for, something else."""
    reserved = inspect.signature(loaded.apply_chat_template).parameters
    words = sorted(set(re.findall(r"[A-Za-z_]\w*", template)) - set(reserved))
    problems = [
        Problem(
            place=f"{place} template_kwargs {name}",
            expected="a variable that the chat template reads",
            found="an argument that servers set" if name in reserved else "a name that is not in it",
            remedy=nearest(name, words),
        )
        for name in kwargs
        if name not in words
    ]
    if problems:
        raise WlgenError(*problems)


def _tried(render: Render, roles: Sequence[str], place: str) -> str:
    try:
        return render(conversation(roles, marked_bodies(roles)))
    except Exception as failure:  # a template is a program: anything may go wrong in it
        raise error(
            place,
            expected=f"a chat template that takes the roles {', '.join(roles) or '(none)'}",
            found=f"one that fails: {failure}",
            remedy="Use roles that the template knows, or another template.",
        ) from failure


def _check_parts(apply: Callable[[Dicts], str], roles: Sequence[str], marked: str, place: str) -> None:
    """Refuse a template that writes a text and a list with that text differently.

    Where a template loops over the parts of a content, vLLM hands it a list even for a string, SGLang the
    string (vLLM 0.32.0 renderers/chat_utils.py, SGLang 0.5.23 parser/jinja_template_utils.py).
    """
    bodies = marked_bodies(roles)
    parts = [[{"type": "text", "text": body}] for body in bodies]
    try:
        text = apply([{"role": r, "content": c} for r, c in zip(roles, parts, strict=True)])
    except Exception:  # noqa: BLE001 (it takes strings only, and servers see that)
        return
    printed = re.search(r"type\W+text", text)  # the list itself, as Python or JSON writes it
    if text != marked and not printed and all(body in text for body in bodies):
        found = "one that writes a content differently when it is a list of parts, as vLLM sends it"
        raise error(place, expected="a chat template that all servers render alike", found=found)


def _check_date(render: Render, template: str, roles: Sequence[str], place: str) -> None:
    days = (datetime(2001, 2, 3, 4, 5, 6), datetime(2012, 11, 20, 21, 32, 43))  # noqa: DTZ001 (as now() gives)
    texts = []
    for day in days:
        with _today(day):
            texts.append(_tried(render, roles, place))
    if texts[0] == texts[1]:
        return
    pin = 'template_kwargs: {date_string: "26 Jul 2024"}'
    raise error(
        place,
        expected="a chat template whose text is the same every day",
        found="one that writes today's date: tomorrow no token behind it would be shared",
        remedy=f"Pin it: {pin}."
        if "date_string" in template
        else "Pin it by a variable of the template in template_kwargs, or write a fixed date into a copy.",
    )


@contextmanager
def _today(day: datetime) -> Iterator[None]:
    """Let templates see another day. Their strftime_now asks the name `datetime` of transformers' module."""
    from transformers.utils import chat_template_utils as module  # noqa: PLC0415 (takes a second)

    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Fixed:
            return cls.combine(day.date(), day.time(), tz)

    real, module.datetime = module.datetime, Fixed
    try:
        yield
    finally:
        module.datetime = real
