#!/usr/bin/env python3
"""From one store to the GPU: Forebay beside PyTorch's DataLoader with pin_memory=True.

    benches/pin_memory.py [--ours] [--times N] [FOLDER]    (default: target/pin_memory)

Makes a Zarr store of three variables of 721 x 1440 in FOLDER, and brings batches of four times to the GPU,
three runs of each kind, in turn. One line of JSON per run, and the medians. Needs `pip install torch zarr`
and a GPU, and says what is missing. The part of torch has not been run yet; `--ours` leaves it out, and then
runs on any machine. Ends with 77 where something is missing.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

VARIABLES = ["t2m", "u10", "v10"]
BATCH = 4
RUNS = 3
SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parent.parent
PIPELINE = """version: 1
name: pin-memory
stages:
  - zarr.windows: {{ store: "{store}", variables: [t2m, u10, v10], window: {{ time: 1 }} }}
  - batch: 4
  - zarr.fetch:
    workers: 8
  - zarr.decode:
  - device.upload: {{ device: {device} }}
"""


def make(path, times):
    import numpy
    import zarr

    root = zarr.open_group(path, mode="a")
    if root.attrs.get("times") == times:
        return
    rng = numpy.random.default_rng(42)
    shape, chunks = (times, 721, 1440), (1, 721, 1440)
    dims = ["time", "latitude", "longitude"]
    for name in VARIABLES:
        array = root.create_array(
            name, shape=shape, chunks=chunks, dtype="f4", dimension_names=dims, overwrite=True
        )
        for i in range(times):
            # Smooth, and with as many digits as measurements have: it is compressed by about a half.
            field = numpy.cumsum(rng.normal(size=chunks[1:]), axis=1)
            array[i] = numpy.round(field, 2).astype("f4")
    root.attrs["times"] = times


def ours(path, device, pipeline):
    pipeline.write_text(PIPELINE.format(store=path, device=device))
    # Built before anything is timed.
    run = ["cargo", "run", "--quiet", "--release", "--", "run", pipeline, "--no-record"]
    if "FOREBAY" in os.environ:
        run[:5] = [os.environ["FOREBAY"]]
    done = subprocess.run([*run, "--format", "json"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    report = json.loads(done.stdout)
    if report["skipped"] or report["unaccounted"]:
        sys.exit(f"items are missing: {done.stdout}")
    return report["items"], report["seconds"]


def theirs(path, times):
    import torch
    import zarr

    class Times(torch.utils.data.Dataset):
        group = None

        def __len__(self):
            return times

        def __getitem__(self, i):
            # Opened once by each worker.
            self.group = self.group or zarr.open_group(path, mode="r")
            return {name: torch.from_numpy(self.group[name][i]) for name in VARIABLES}

    loader = torch.utils.data.DataLoader(
        Times(), batch_size=BATCH, num_workers=os.cpu_count(), pin_memory=True
    )
    seen, begun = 0, time.perf_counter()
    for batch in loader:
        there = {name: tensor.to("cuda", non_blocking=True) for name, tensor in batch.items()}
        seen += len(there[VARIABLES[0]])
    torch.cuda.synchronize()
    return seen, time.perf_counter() - begun


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", nargs="?", default=ROOT / "target/pin_memory")
    arguments.add_argument("--times", type=int, default=256)
    arguments.add_argument("--ours", action="store_true")
    given = arguments.parse_args()
    try:
        import zarr  # noqa: F401
    except ImportError:
        print("skipped: zarr is not installed (pip install zarr torch)", file=sys.stderr)
        sys.exit(SKIPPED)
    if not given.ours:
        try:
            import torch
        except ImportError:
            print("skipped: torch is not installed (pip install zarr torch)", file=sys.stderr)
            sys.exit(SKIPPED)
        if not torch.cuda.is_available():
            print("skipped: torch sees no GPU; --ours runs without one", file=sys.stderr)
            sys.exit(SKIPPED)
    folder = pathlib.Path(given.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / "store.zarr")
    make(path, given.times)
    device = "auto" if given.ours else "cuda:0"
    kinds = {"forebay": lambda: ours(path, device, folder / "pin-memory.yaml")}
    if not given.ours:
        kinds["torch"] = lambda: theirs(path, given.times)
    # The first round of each warms the system's cache of files, and is not counted.
    rates = {kind: [] for kind in kinds}
    for round in range(RUNS + 1):
        for kind, run in kinds.items():
            seen, seconds = run()
            if seen != given.times:
                sys.exit(f"{kind}: {seen} of {given.times} times arrived")
            if round > 0:
                rates[kind].append(seen / seconds)
                print(json.dumps({"what": kind, "unit": "times/s", "value": seen / seconds}))
    for kind, values in rates.items():
        print(json.dumps({"what": kind, "unit": "times/s", "median": statistics.median(values)}))


if __name__ == "__main__":
    main()
