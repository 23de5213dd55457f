"""A kind is a module of a folder, and its name is the name in the spec."""

from __future__ import annotations

import pytest

from wlgen import cache_rules, encodings, exporters, readers, registry, tasks, witnesses
from wlgen.errors import WlgenError

FOLDERS = [cache_rules, encodings, exporters, readers, tasks, witnesses]


def test_names_are_the_modules_without_those_of_the_folder_itself():
    found = registry.names(cache_rules)
    assert found == sorted(found)
    assert {"sglang", "sglang-dsv4-cuda", "sglang-dsv4-npu", "vllm", "vllm-ascend-dsv4", "vllm-dsv4"} <= set(
        found
    )
    assert not any(name.startswith("_") for name in found)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.__name__)
def test_every_kind_loads_by_its_name(folder):
    for name in registry.names(folder):
        module = registry.load(folder, name, place="test")
        assert module.__name__ == f"{folder.__name__}.{name.replace('-', '_')}"
        assert module.__doc__


@pytest.mark.parametrize(
    ("folder", "name", "kind", "near"),
    [
        (cache_rules, "sglang-dsv4", "cache rule", "Did you mean 'sglang-dsv4-npu'?"),
        (encodings, "deepseek_v4", "encoding", "Did you mean 'deepseek-v4'?"),
        (tasks, "coppy", "task", "Did you mean 'copy'?"),
        (exporters, "aisbnch", "exporter", "Did you mean 'aisbench'?"),
    ],
)
def test_an_unknown_name_lists_the_known_ones_and_the_nearest(folder, name, kind, near):
    with pytest.raises(WlgenError) as failure:
        registry.load(folder, name, place="s.yaml:3 x")
    (problem,) = failure.value.problems
    assert problem.place == "s.yaml:3 x"
    assert problem.expected == f"a known {kind}: {', '.join(registry.names(folder))}"
    assert (problem.found, problem.remedy) == (repr(name), near)


@pytest.mark.parametrize("name", ["", "__init__", "_forced", "os", "..", "zzzz"])
def test_no_other_module_is_reached_by_a_name(name):
    with pytest.raises(WlgenError):
        registry.load(cache_rules, name, place="test")
