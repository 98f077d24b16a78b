#!/usr/bin/env bash
# Every check that needs a GPU, in one go, in about six minutes:
#
#     benches/gpu.sh [OUT]        writes OUT/gpu.jsonl (default: target/gpu)
#
# Each figure that should be reached is judged, `ok` or `MISSED`; the script fails if one is missed, once all
# have been tried, and ends with 77 where there is no GPU. What runs anywhere is not repeated here:
# `cargo test --test cuda` has it, on a simulated GPU. The comparison with PyTorch's pin_memory=True loader is
# skipped where torch or zarr is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-target/gpu}
mkdir -p "$out"
missed=0
skipped=0

check() {
    local name=$1
    shift
    local ended=0
    "$@" || ended=$?
    case $ended in
        0) echo "ok     $name" ;;
        77)
            echo "skipped $name"
            skipped=$((skipped + 1))
            ;;
        *)
            echo "MISSED $name"
            missed=$((missed + 1))
            ;;
    esac
}

# Nothing ends a function that fails in "check", but what it says itself.
figures() {
    cargo bench --bench gpu | tee "$out/gpu.jsonl" || return 1
    # Without a GPU it has no figures.
    [ -s "$out/gpu.jsonl" ] || return 77
}
# The main job with its batches on the GPU: all of them were copied from pinned memory.
main_job() {
    [ -s "$out/gpu.jsonl" ] || return 77
    cargo run --release -- run pipelines/gpu.yaml --set device=cuda:0 --format json --no-record \
        > "$out/run.json" || return 1
    python3 - "$out/run.json" <<'PYTHON'
import json, sys
stages = json.load(open(sys.argv[1]))["stages"]
upload = next(stage["device"] for stage in stages if stage["id"] == "upload")
print(f"{upload['copies']} batches copied, {upload['pageable_copies']} tensors from pageable memory")
sys.exit(upload["copies"] == 0 or upload["pageable_copies"] > 0)
PYTHON
}
loaders() { python3 benches/pin_memory.py "$out/pin_memory" | tee "$out/pin_memory.jsonl"; }

nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max --format=csv | tee "$out/machine.csv" || true
check "figures of the GPU" figures
check "the main job copies from pinned memory alone" main_job
check "beside PyTorch's loader" loaders
echo "$missed of 3 missed, $skipped skipped"
[ "$missed" -eq 0 ] || exit 1
[ -s "$out/gpu.jsonl" ] || exit 77
