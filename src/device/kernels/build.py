#!/usr/bin/env python3
"""Compiles kernels.cu to kernels.ptx with NVIDIA's NVRTC, which needs no GPU.

    python3 build.py            writes kernels.ptx
    python3 build.py --check    fails if kernels.ptx is not what kernels.cu makes
    python3 build.py --library  prints the folder of libnvrtc.so, for LD_LIBRARY_PATH

The compiler comes from PyPI, at a pinned version, into a folder of the user's cache. PTX of a 12.x
compiler loads on all drivers that serve its version; one of 13.x would not.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import zipfile

VERSION = "12.0.140"
HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))


def library() -> pathlib.Path:
    to = CACHE / "forebay" / f"nvrtc-{VERSION}"
    found = to / "nvidia" / "cuda_nvrtc" / "lib"
    if not (found / "libnvrtc.so.12").exists():
        to.mkdir(parents=True, exist_ok=True)
        package = f"nvidia-cuda-nvrtc-cu12=={VERSION}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", to, package]
        subprocess.run(command, check=True, stdout=sys.stderr)
        for wheel in to.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(to)
            wheel.unlink()
    return found


def compile_to_ptx(source: bytes) -> str:
    folder = library()
    # Loaded first, as the compiler looks for it by name only.
    for builtins in folder.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.12"))
    program = ctypes.c_void_p()

    def call(name, *arguments):
        code = getattr(nvrtc, name)(*arguments)
        if code != 0:
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            sys.exit(f"{name}: error {code}\n{log.value.decode()}")

    call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    options = [b"--gpu-architecture=compute_70", b"--std=c++17"]
    call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    call("nvrtcGetPTXSize", program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    call("nvrtcGetPTX", program, ptx)
    return ptx.value.decode()


def main() -> None:
    if "--library" in sys.argv:
        print(library())
        return
    ptx = compile_to_ptx((HERE / "kernels.cu").read_bytes())
    committed = HERE / "kernels.ptx"
    if "--check" not in sys.argv:
        committed.write_text(ptx)
        print(f"{committed}: {ptx.count('.visible .entry')} kernels", file=sys.stderr)
    elif committed.read_text() != ptx:
        sys.exit("kernels.ptx is not what kernels.cu makes: run build.py and commit it")


main()
