"""Every task keeps the contract of wlgen.tasks, whichever module it is."""

from __future__ import annotations

import pytest
from kit.sets import spec_of
from pydantic import BaseModel

from wlgen import registry, tasks
from wlgen.build.ready import blueprint

BUILT = [name for name in registry.names(tasks) if name != "corpus"]  # which needs a text of a person's own


@pytest.mark.parametrize("name", registry.names(tasks))
def test_a_task_is_options_and_make(name):
    module = registry.load(tasks, name, place="test")
    assert issubclass(module.Options, BaseModel)
    assert callable(module.make)
    assert " it is " in module.ACCEPTANCE


@pytest.mark.parametrize("name", BUILT)
def test_fewer_shared_tokens_are_the_start_of_more(name):
    task = blueprint(spec_of(task=name)).tasks[0]
    long = task.shared(("test",), 300)
    for tokens in (0, 1, 2, 17, 299):
        short = task.shared(("test",), tokens)
        assert len(short.ids) == tokens
        assert long.ids[:tokens].tolist() == short.ids.tolist()
        assert long.text.startswith(short.text)


@pytest.mark.parametrize("name", BUILT)
def test_an_own_part_has_the_tokens_asked_for_and_ends_in_no_space(name):
    task = blueprint(spec_of(task=name)).tasks[0]
    least = task.least_own(8)
    for tokens in (least, least + 1, least + 15, least + 16, least + 400):
        chunk = task.own(("test", tokens), tokens, 8)
        assert len(chunk.ids) == tokens
        assert chunk.text == chunk.text.rstrip()


@pytest.mark.parametrize("name", BUILT)
def test_more_output_never_needs_fewer_tokens(name):
    task = blueprint(spec_of(task=name)).tasks[0]
    least = [task.least_own(output_len) for output_len in range(1, 200)]
    assert least == sorted(least)
