#!/usr/bin/env bash
# Every check that needs a GPU, in one go, in about five minutes:
#
#     benches/gpu.sh [OUT]        writes OUT/gpu.jsonl (default: target/gpu)
#
# What runs anywhere is not repeated here: `cargo test --test cuda` has it, on a simulated GPU. A comparison
# with PyTorch's pin_memory=True loader is not in it yet.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-target/gpu}
mkdir -p "$out"

nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max --format=csv | tee "$out/machine.csv" || true
cargo bench --bench gpu | tee "$out/gpu.jsonl"
# The main job with its batches on the GPU: the report says what was copied, and that nothing was
# pageable.
cargo run --release -- run pipelines/gpu.yaml --format json > "$out/run.json"
