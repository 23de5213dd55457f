"""Framing found by rendering: what a template may do to its messages, and what it may not."""

from __future__ import annotations

import re

import pytest
from kit import families
from tokenizers import Tokenizer

from wlgen.encodings._framing import find_framing
from wlgen.errors import WlgenError

PAIR = ("user", "assistant")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = families.plain(tmp_path_factory.mktemp("plain"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def one(write):
    """Return a render for conversations of one message, from a function of its text."""
    return lambda messages: write(messages[0].content)


REFUSED = {
    "leaves out or changes the text of message 1 of 1 (user)": one(lambda text: "Q" + text.upper()),
    "writes the text of message 1 of 1 (user) 2 times": one(lambda text: f"{text}\nAgain: {text}\n"),
    "writes other text around message 1 of 1 (user) where that is 'The river', 9 characters": one(
        lambda text: f"{len(text)} characters: {text}\n"
    ),
    "cuts or changes the text of message 1 of 1 (user) where that is 'The quiet farmer painted'": one(
        lambda text: f"<{text[:10_000]}>"
    ),
    "cuts or changes the text of message 1 of 1 (user) where that is 'First line": one(
        lambda text: "Q: " + re.sub(r"\s+", " ", text)
    ),
    "changes the text of message 1 of 1 (user) where that is 'I', 1 characters": one(
        lambda text: "Q: " + (text if len(text) > 1 else "(empty)")
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_template_without_fixed_text_is_refused_with_the_reason(tokenizer, reason):
    with pytest.raises(WlgenError, match=re.escape(reason)) as refusal:
        find_framing(REFUSED[reason], tokenizer, ("user",), place="spec.yaml:3")
    assert str(refusal.value).startswith("spec.yaml:3: expected a chat template with fixed text")


def test_messages_out_of_order_are_refused(tokenizer):
    def render(messages):
        return "".join(f"[{m.role}] {m.content}\n" for m in reversed(messages))

    with pytest.raises(
        WlgenError, match=r"writes message 2 of 2 \(assistant\) before message 1 of 2 \(user\)"
    ):
        find_framing(render, tokenizer, PAIR, place="spec.yaml:3")


def test_messages_without_anything_between_are_refused(tokenizer):
    def render(messages):
        return "".join(m.content for m in messages)

    with pytest.raises(WlgenError, match=r"joins message 1 of 2 \(user\) and message 2 of 2 \(assistant\)"):
        find_framing(render, tokenizer, PAIR, place="spec.yaml:3")


def test_the_text_of_one_message_may_not_depend_on_another(tokenizer):
    def render(messages):
        return f"{len(messages[1].content)} [{messages[0].content}] ({messages[1].content})"

    with pytest.raises(WlgenError, match="writes other text around message 2 of 2"):
        find_framing(render, tokenizer, PAIR, place="spec.yaml:3")


@pytest.mark.parametrize(
    ("head", "tail", "head_tokens", "tail_tokens"),
    [
        ("", "", [], []),
        ("Q: ", "", ["Q", ":"], []),  # the space goes into the first word
        ("Q:\n", "", ["Q", ":", "Ċ"], []),
        ("", "\nA:", [], ["Ċ", "A", ":"]),
        ("", " end", [], ["Ġend"]),
        ("", "end", [], []),  # runs on from a last word
    ],
)
def test_a_gap_keeps_the_tokens_that_no_body_changes(tokenizer, head, tail, head_tokens, tail_tokens):
    framing = find_framing(one(lambda text: head + text + tail), tokenizer, ("user",), place="spec.yaml:3")
    assert framing.texts == (head, tail)
    assert [[tokenizer.id_to_token(i) for i in ids] for ids in framing.ids] == [head_tokens, tail_tokens]


def test_a_line_break_that_a_full_stop_joins_belongs_to_the_body(tokenizer):
    """After a word it stands alone, after a full stop it is part of one token with it."""
    assert tokenizer.encode("The end\n").tokens[-1] == "Ċ"
    chatml = Tokenizer.from_str(families._chatml())
    assert chatml.encode("The end.\n").tokens[-1] == ".Ċ"
    framing = find_framing(one(lambda text: text + "\nA:"), chatml, ("user",), place="spec.yaml:3")
    assert [chatml.id_to_token(i) for i in framing.ids[1]] == ["A", ":"]
