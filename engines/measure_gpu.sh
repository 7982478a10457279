#!/usr/bin/env bash
# Times a 10B driving model's cycle on one CUDA GPU, in at most 8 minutes, with PyTorch alone: random weights in bf16,
# CUDA graphs. Writes measure_gpu.json and measure_gpu.md to $OUT (default: the current folder).
#
#     OUT=results bash engines/measure_gpu.sh            # the 10B shape
#     OUT=results SHAPE=tiny bash engines/measure_gpu.sh # seconds; where there is no GPU: on the CPU, to try the script
#
# Needs nothing of this repository but the two files beside it (measure_gpu*.py), and installs nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-.}
mkdir -p "$out"
exec timeout "${LIMIT_S:-480}" "${PYTHON:-python3}" "$here/measure_gpu.py" --shape "${SHAPE:-10b}" --out "$out" "$@"
