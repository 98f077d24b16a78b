"""Makes written.json.gz: small stores as zarr-python, numcodecs and tensorstore write them.

    pip install zarr==3.1.6 numcodecs==0.16.6 tensorstore==0.1.86 numpy==2.4.6 pcodec==1.1.0
    python tests/data/written.py | gzip -9n > tests/data/written.json.gz

Each case holds the objects of a store by key (hex) and the values of its variable `v` of 6 x 5 x 4,
in row-major order, as float64.
"""

import json
import pathlib
import sys
import tempfile
import warnings

import numcodecs
import numcodecs.zarr3 as n3
import numpy as np
import tensorstore as ts
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

warnings.simplefilter("ignore")
SHAPE, CHUNK, DIMS = (6, 5, 4), (4, 3, 4), ["time", "y", "x"]
cases = []


def values(dtype):
    flat = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    return (flat % 2 if dtype == "bool" else flat).astype(dtype)


def keep(name, folder, stored, tolerance=0.0):
    root = pathlib.Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    objects = {str(path.relative_to(root)): path.read_bytes().hex() for path in files}
    flat = [float(x) for x in np.asarray(stored).astype("float64").ravel()]
    cases.append({"name": name, "tolerance": tolerance, "objects": objects, "values": flat})


def v3(name, dtype="float32", tolerance=0.0, consolidated=True, chunks=CHUNK, **options):
    with tempfile.TemporaryDirectory() as folder:
        group = zarr.create_group(folder, zarr_format=3)
        array = group.create_array(
            "v", shape=SHAPE, chunks=chunks, dtype=dtype, dimension_names=DIMS, **options
        )
        array[:] = values(dtype)
        if consolidated:
            zarr.consolidate_metadata(folder)
        keep(f"zarr-python v3 {name}", folder, array[:], tolerance)


def v2(name, dtype="<f4", tolerance=0.0, consolidated=True, path="v", **options):
    with tempfile.TemporaryDirectory() as folder:
        group = zarr.create_group(folder, zarr_format=2)
        array = group.create_array(path, shape=SHAPE, chunks=CHUNK, dtype=dtype, **options)
        array.attrs["_ARRAY_DIMENSIONS"] = DIMS
        array[:] = values(dtype.lstrip("<>|"))
        if consolidated:
            zarr.consolidate_metadata(folder, zarr_format=2)
        keep(f"zarr-python v2 {name}", folder, array[:], tolerance)


def tensorstore(name, driver, metadata, dtype="float32"):
    with tempfile.TemporaryDirectory() as folder:
        spec = {
            "driver": driver,
            "kvstore": {"driver": "file", "path": f"{folder}/v/"},
            "metadata": metadata,
            "create": True,
        }
        array = ts.open(spec).result()
        array[...].write(values(dtype)).result()
        if driver == "zarr":
            (pathlib.Path(folder) / ".zgroup").write_text('{"zarr_format": 2}')
            attributes = pathlib.Path(folder) / "v" / ".zattrs"
            attributes.write_text(json.dumps({"_ARRAY_DIMENSIONS": DIMS}))
        else:
            group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
            (pathlib.Path(folder) / "zarr.json").write_text(json.dumps(group))
        keep(f"tensorstore {driver} {name}", folder, array.read().result())


# Version 3: element types, byte orders, compressions, checksums, transposition, shards.
for dtype in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split():
    v3(dtype, dtype)
v3("big-endian", serializer=BytesCodec(endian="big"))
v3("raw", compressors=None)
for cname in "blosclz lz4 lz4hc zlib zstd".split():
    for shuffle in "noshuffle shuffle bitshuffle".split():
        v3(f"blosc {cname} {shuffle}", compressors=BloscCodec(cname=cname, shuffle=shuffle))
v3("zstd", compressors=ZstdCodec(level=3))
v3("zstd checksum", compressors=ZstdCodec(level=3, checksum=True))
v3("gzip", compressors=GzipCodec(level=6))
v3("zstd crc32c", compressors=[ZstdCodec(), Crc32cCodec()])
v3("gzip in zstd", compressors=[GzipCodec(), ZstdCodec()])
v3("crc32c", compressors=Crc32cCodec())
v3("transpose", filters=TransposeCodec(order=(2, 0, 1)))
v3("transpose big-endian", filters=TransposeCodec(order=(2, 0, 1)), serializer=BytesCodec(endian="big"))
v3("not consolidated", consolidated=False)
v3("dots", chunk_key_encoding={"name": "default", "separator": "."})
v3("v2 keys", chunk_key_encoding={"name": "v2", "separator": "/"})
for location in ["start", "end"]:
    v3(
        f"shards, index at the {location}",
        chunks=SHAPE,
        serializer=ShardingCodec(
            chunk_shape=(3, 5, 2), codecs=[BytesCodec(), ZstdCodec()], index_location=location
        ),
        compressors=None,
    )
v3(
    "shards of gzip and crc32c",
    chunks=(4, 5, 4),
    serializer=ShardingCodec(
        chunk_shape=(2, 5, 2), codecs=[BytesCodec(), GzipCodec(), Crc32cCodec()]
    ),
    compressors=None,
)
v3("numcodecs.zlib", compressors=n3.Zlib(level=3))
v3("numcodecs.bz2", compressors=n3.BZ2(level=3))
v3("numcodecs.lz4", compressors=n3.LZ4())
v3("numcodecs.zstd", compressors=n3.Zstd(level=3))
v3("numcodecs.gzip", compressors=n3.GZip(level=3))
v3("numcodecs.shuffle", compressors=[n3.Shuffle(elementsize=4), n3.Zlib()])
v3("numcodecs.fletcher32", compressors=n3.Fletcher32())
v3("numcodecs.adler32", compressors=n3.Adler32())
v3("numcodecs.bitround", filters=n3.BitRound(keepbits=10))
v3("numcodecs.fixedscaleoffset", "float64", filters=n3.FixedScaleOffset(offset=0, scale=10, dtype="<f8", astype="<i4"))
v3("numcodecs.packbits", "bool", filters=n3.PackBits())
v3("numcodecs.delta", "int32", filters=n3.Delta(dtype="<i4"))
v3("numcodecs.pcodec", serializer=n3.PCodec(level=8), compressors=None)
v3("numcodecs.lzma", compressors=n3.LZMA())

# Version 2.
for dtype in "|b1 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 <f2 <f4 <f8 >i2 >f4 >f8".split():
    v2(dtype, dtype)
v2("raw", compressors=None)
for name, compressor in {
    "blosc lz4": numcodecs.Blosc(cname="lz4", clevel=5, shuffle=1),
    "blosc zstd bitshuffle": numcodecs.Blosc(cname="zstd", clevel=5, shuffle=2),
    "blosc auto": numcodecs.Blosc(cname="lz4", shuffle=-1),
    "zlib": numcodecs.Zlib(level=3),
    "gzip": numcodecs.GZip(level=3),
    "bz2": numcodecs.BZ2(level=3),
    "lz4": numcodecs.LZ4(),
    "zstd": numcodecs.Zstd(level=3),
    "lzma": numcodecs.LZMA(),
}.items():
    v2(name, compressors=compressor)
v2("order F", order="F")
v2("order F, big-endian", ">f4", order="F")
v2("fill value null", fill_value=None)
v2("slashes", chunk_key_encoding={"name": "v2", "separator": "/"})
v2("not consolidated", consolidated=False)
v2("shuffle and zlib", filters=[numcodecs.Shuffle(elementsize=4)], compressors=numcodecs.Zlib())
v2("delta", "<i4", filters=[numcodecs.Delta(dtype="<i4")])
v2("fixedscaleoffset", "<f8", filters=[numcodecs.FixedScaleOffset(offset=0, scale=10, dtype="<f8", astype="<i4")])
v2("bitround", filters=[numcodecs.BitRound(keepbits=10)])
v2("packbits", "|b1", filters=[numcodecs.PackBits()])
v2("fletcher32", filters=[numcodecs.Fletcher32()])
v2("quantize", filters=[numcodecs.Quantize(digits=2, dtype="<f4")])

# tensorstore.
grid = {"name": "regular", "configuration": {"chunk_shape": list(CHUNK)}}
base = {"shape": list(SHAPE), "data_type": "float32", "dimension_names": DIMS, "chunk_grid": grid}
little = {"name": "bytes", "configuration": {"endian": "little"}}
big = {"name": "bytes", "configuration": {"endian": "big"}}
zstd = {"name": "zstd", "configuration": {"level": 3}}
gzip = {"name": "gzip", "configuration": {"level": 5}}
crc = {"name": "crc32c"}
transpose = {"name": "transpose", "configuration": {"order": [1, 2, 0]}}
blosc = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}
for name, codecs in {
    "zstd": [little, zstd],
    "gzip": [little, gzip],
    "blosc": [little, blosc],
    "crc32c": [little, crc],
    "transpose, big-endian": [transpose, big, zstd],
}.items():
    tensorstore(name, "zarr3", base | {"codecs": codecs})
for location in ["start", "end"]:
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [2, 5, 2],
            "codecs": [transpose, little, blosc],
            "index_codecs": [little, crc],
            "index_location": location,
        },
    }
    whole = {"name": "regular", "configuration": {"chunk_shape": [4, 5, 4]}}
    tensorstore(f"shards, index at the {location}", "zarr3", base | {"chunk_grid": whole, "codecs": [sharding]})
old = {"shape": list(SHAPE), "chunks": list(CHUNK), "dtype": "<f4", "order": "C", "filters": None, "fill_value": None}
for name, compressor in {
    "raw": None,
    "zlib": {"id": "zlib", "level": 3},
    "bz2": {"id": "bz2", "level": 3},
    "zstd": {"id": "zstd", "level": 3},
    "blosc": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 0},
}.items():
    tensorstore(name, "zarr", old | {"compressor": compressor})
tensorstore("order F", "zarr", old | {"order": "F", "compressor": None, "dtype": ">f4"})

json.dump({"cases": cases}, sys.stdout, separators=(",", ":"))
