"""Chunks decoded into memory that is used again: the same bits as Zarr's, from every form of store, or Zarr reads."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec

from xspline.labels.read.stored.chunks import ChunkReader, UnknownError

SHAPE, CHUNKS = (25, 14, 9), (8, 6, 4)
KNOWN = {
    "zstd": {"compressors": ZstdCodec()},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
    "plain": {"compressors": None},
    "integers": {"compressors": ZstdCodec(), "dtype": "i2"},
    "version 2": {"zarr_format": 2},
    "shards": {"shards": (16, 12, 8)},
    "index first": {
        "serializer": ShardingCodec(chunk_shape=(4, 3, 2), index_location="start"),
        "compressors": None,
    },
}
UNKNOWN = {
    "gzip": {"compressors": GzipCodec()},
    "checksums": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "two codecs": {"compressors": [ZstdCodec(), BloscCodec()]},
    "big-endian": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "Fortran's order": {"zarr_format": 2, "order": "F"},
}
BOXES = [
    ((0, 25), (0, 14), (0, 9)),
    ((8, 16), (6, 12), (4, 8)),
    ((3, 22), (5, 7), (8, 9)),
    ((24, 25), (0, 14), (0, 9)),
]


def stored(store: object, **options: object) -> zarr.Array:
    rng = np.random.default_rng(2)
    given = {"shape": SHAPE, "chunks": CHUNKS, "dtype": "f4", **options}
    array = zarr.create_array(store, name="u", fill_value=7, **given)
    array[...] = (100 * rng.standard_normal(SHAPE)).astype(given["dtype"])
    return array


def slices(box: tuple[tuple[int, int], ...]) -> tuple[slice, ...]:
    return tuple(slice(*ends) for ends in box)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["directory", "other store"])
@pytest.mark.parametrize("options", KNOWN.values(), ids=KNOWN)
def test_boxes_are_those_of_zarr_bit_for_bit(options, where, tmp_path):
    array = stored(tmp_path / "u.zarr" if where == "directory" else zarr.storage.MemoryStore(), **options)
    reader = (
        pickle.loads(pickle.dumps(ChunkReader.of(array))) if where == "directory" else ChunkReader.of(array)
    )
    assert isinstance(reader, ChunkReader)
    for box in map(slices, BOXES):
        expected, got = array[box], reader[box]
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()
        if where == "directory":
            assert reader._read(box).tobytes() == expected.tobytes()


@pytest.mark.parametrize("options", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_left_to_zarr(options, tmp_path):
    array = stored(tmp_path / "u.zarr", **options)
    assert ChunkReader.of(array) is array


def test_chunks_that_were_never_written_are_filled_by_zarr(tmp_path):
    array = zarr.create_array(
        tmp_path / "u.zarr", name="u", shape=SHAPE, chunks=CHUNKS, dtype="f4", fill_value=7
    )
    array[:8] = 1.0
    reader = ChunkReader.of(array)
    with pytest.raises(UnknownError, match="never written"):
        reader._read(slices(BOXES[0]))
    np.testing.assert_array_equal(reader[slices(BOXES[0])], array[...])


@pytest.mark.parametrize("damage", ["short", "of another size", "no codec's", "a shard's index"])
def test_damage_is_what_zarr_says_of_it(damage, tmp_path):
    array = stored(tmp_path / "u.zarr", **KNOWN["shards" if "shard" in damage else "zstd"])
    path = tmp_path / "u.zarr" / "u" / "c" / "0" / "0" / "0"
    content = bytearray(path.read_bytes())
    if damage == "of another size":
        content = bytearray(zarr.codecs.ZstdCodec()._zstd_codec.encode(np.zeros(CHUNKS, "f4").ravel()[:-1]))
    elif damage == "no codec's":
        content[:4] = b"none"
    elif damage == "short":
        content = content[:-9]
    else:
        content[-12] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=r".") as expected:
        array[:8, :6, :4]
    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        ChunkReader.of(array)[slices(((0, 8), (0, 6), (0, 4)))]


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"chunks": {}}, {"chunks": None}], ids=["Dask", "lazy"])
@pytest.mark.parametrize("packed", [False, True], ids=["floats", "packed"])
def test_statistics_are_those_of_the_values_that_xarray_decodes(form, packed, tmp_path):
    rng = np.random.default_rng(3)
    u = xr.DataArray(20 + rng.standard_normal((24, 10, 12)), dims=("time", "lat", "lon"), name="u")
    u = u.assign_coords(time=np.arange(24.0), lat=np.linspace(-40, 40, 10), lon=np.arange(12.0))
    u = u.where(rng.random(u.shape) > 0.2)
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -999}
    encoding = {"u": {"chunks": (8, 10, 12), **(packing if packed else {"dtype": "f4"})}}
    u.to_dataset().to_zarr(tmp_path / "u.zarr", encoding=encoding, consolidated=False)
    lazy = xr.open_zarr(tmp_path / "u.zarr", consolidated=False, **form).u
    space = u.spline.space(time=5, lat=4, lon=4)
    held = (
        lazy.load(scheduler="synchronous")
        if form["chunks"] is None
        else lazy.persist(scheduler="synchronous")
    )
    again = xr.open_zarr(tmp_path / "u.zarr", consolidated=False, **form).u
    whole = held.chunk(time=-1 if form["chunks"] is None else 8)
    expected = whole.spline.statistics(space).parts[0].sums["u"]
    got = again.spline.statistics(space).parts[0].sums["u"]
    np.testing.assert_array_equal(got.moment, expected.moment)
