"""Errors of a chat template: it ignores a variable, fails, differs between servers or writes today's date."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Any, TypeAlias

from wlgen.encodings import Render
from wlgen.encodings._framing import conversation, marked_bodies
from wlgen.errors import Problem, WlgenError, error
from wlgen.registry import nearest

Dicts: TypeAlias = list[dict[str, Any]]


def check_kwargs(loaded: Any, template: str, kwargs: Mapping[str, Any], place: str) -> None:
    """Refuse names that the template never reads: a mistyped name would silently have no effect."""
    reserved = inspect.signature(loaded.apply_chat_template).parameters
    words = sorted(set(re.findall(r"[A-Za-z_]\w*", template)) - set(reserved))
    problems = [
        Problem(
            place=f"{place}.template_kwargs.{name}",
            expected="a variable that the chat template reads",
            found="an argument that servers set" if name in reserved else "a name that is not in it",
            remedy=nearest(name, words),
        )
        for name in kwargs
        if name not in words
    ]
    if problems:
        raise WlgenError(*problems)


def try_roles(render: Render, roles: Sequence[str], place: str) -> str:
    """Return the text of a conversation of marked bodies; WlgenError in the template's words if it fails."""
    try:
        return render(conversation(roles, marked_bodies(roles)))
    except Exception as failure:  # a template is a program: anything may go wrong in it
        raise error(
            place,
            expected=f"a chat template that takes the roles {', '.join(roles) or '(none)'}",
            found=f"one that fails: {' '.join(str(failure).split())}",
            remedy="Use roles that the template knows, or another template.",
        ) from failure


def check_parts(apply: Callable[[Dicts], str], roles: Sequence[str], marked: str, place: str) -> None:
    """Refuse a template that writes a content given as text and as a list of one text part differently.

    To a template that loops over a content's parts, vLLM hands a list even for a string, and SGLang the
    string (vLLM 0.32.0 renderers/chat_utils.py, SGLang 0.5.23 parser/jinja_template_utils.py).
    """
    bodies = marked_bodies(roles)
    parts = [[{"type": "text", "text": body}] for body in bodies]
    try:
        text = apply([{"role": r, "content": c} for r, c in zip(roles, parts, strict=True)])
    except Exception:  # noqa: BLE001 (the template takes strings only, and servers then send strings)
        return
    printed = re.search(r"type\W+text", text)  # the list itself, as Python or JSON writes it
    if text != marked and not printed and all(body in text for body in bodies):
        found = "one that writes a content differently when it is a list of parts, as vLLM sends it"
        raise error(place, expected="a chat template that all servers render alike", found=found)


def check_date(render: Render, template: str, roles: Sequence[str], place: str) -> None:
    """Refuse a template whose text depends on the day."""
    if "strftime_now" not in template:  # the only clock that transformers hands to templates
        return
    days = (datetime(2001, 2, 3, 4, 5, 6), datetime(2012, 11, 20, 21, 32, 43))  # noqa: DTZ001 (as now() gives)
    texts = []
    for day in days:
        with _today(day):
            texts.append(try_roles(render, roles, place))
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
    """Let templates see another day: their strftime_now reads `datetime` in a module of transformers."""
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
