"""What every encoding keeps: found by name, strict options, framing and ids that agree."""

from __future__ import annotations

import json

import pytest
from kit import families

from wlgen import encodings, registry
from wlgen.encodings import Message
from wlgen.strict.model import Strict

ONE = ("user",)
NAMES = registry.names(encodings)


@pytest.fixture(params=NAMES)
def module(request):
    return registry.load(encodings, request.param, place="spec.yaml:3")


@pytest.fixture
def encoding(module, tmp_path):
    needs_path = "path" in module.Options.model_fields
    options = {"path": str(families.chatml(tmp_path))} if needs_path else {}
    return module.load(module.Options(**options), place="spec.yaml:3")


def test_the_known_encodings_are_these():
    assert NAMES == ["chat-template", "deepseek-v4", "raw"]


def test_options_are_strict_and_explained(module):
    assert issubclass(module.Options, Strict)
    assert all(of.description for of in module.Options.model_fields.values())


def test_an_encoding_carries_its_name_and_the_hash_of_its_tokenizer(module, encoding):
    assert encoding.name == module.__name__.rpartition(".")[2].replace("_", "-")
    assert len(bytes.fromhex(encoding.tokenizer_sha256)) == 32


def test_requests_can_carry_the_server_kwargs(encoding):
    assert json.loads(json.dumps(encoding.server_kwargs)) == encoding.server_kwargs
    assert encoding.chat or not encoding.server_kwargs


def test_a_prompt_is_its_gaps_and_its_body_in_text_and_tokens(encoding):
    framing = encoding.frame(ONE)
    messages = [Message("user", "The end is near")]
    assert encoding.render(messages) == "The end is near".join(framing.texts)
    head, tail = framing.ids
    assert encoding.prompt_ids(messages) == [*head, *encoding.encode("The end is near"), *tail]


def test_a_framing_is_found_once(encoding):
    assert encoding.frame(ONE) is encoding.frame(ONE)
