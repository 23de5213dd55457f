"""Makes SGLang importable without an accelerator, and publishes a configuration of engine defaults."""

from __future__ import annotations

from typing import Any

import torch

torch.compile = lambda *args, **_kwargs: args[0] if args else (lambda function: function)

# Transformers asks for the version of torchvision, so it comes before that is stubbed.
import stubs  # noqa: E402 (see above)
from transformers import AutoProcessor, PretrainedConfig  # noqa: E402, F401 (see above)

stubs.stub(
    "vllm",
    "sentencepiece",
    "compressed_tensors",
    "gguf",
    "triton",
    "aiohttp",
    "tvm_ffi",
    "torchvision",
    "partial_json_parser",
)

from sglang.srt import runtime_context  # noqa: E402 (after the stubs)

OFF = None


class Defaults:
    """A namespace of the configuration: off, unless set."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return OFF


SPACES = {
    "exec": Defaults(features=Defaults(), mamba=Defaults()),
    "schedule": Defaults(schedule_policy="fcfs"),
    "memory": Defaults(),
    "spec": Defaults(),
    "disagg": Defaults(disaggregation_mode="null"),
    "serving": Defaults(),
    "model": Defaults(),
    "parallel": Defaults(),
    "observability": Defaults(),
    "device": Defaults(device="cpu"),
    "lora": Defaults(),
    "mm": Defaults(),
}
runtime_context.get_context()._config_bags = SPACES
