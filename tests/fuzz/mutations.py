"""Ways to damage a file: blindly, as text, or as an archive with correct checksums."""

import hashlib
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minigibbs.system import files

NUMBERS = [b"0", b"-1", b"1", b"2", b"1e308", b"-1e308", b"1e-320", b"1e999", b"nan", b"inf"]
NUMBERS += [b"2147483647", b"2147483648", b"9223372036854775808", b"1" * 400, b"0x10", b"1_0"]
BYTES = [b"\x00", b"\xff", b"\n", b"{", b"}", b'"', b"(", b",", b"\xef\xbb\xbf", b"PK\x01\x02"]
VALUES = [None, True, -1, 0, 1, 3, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), float("inf")]
VALUES += ["", "x", "1", "length", [], [0], [[]], ["a"], {}, {"0": 1}, {"a": {"b": []}}]


def spoil(content: bytes, rng: random.Random) -> bytes:
    """Make one to six changes of bytes."""
    for _ in range(rng.choice((1, 1, 2, 3, 4, 6))):
        content = rng.choice(_BLIND)(content, rng)
    return content


def _place(content, rng):
    return rng.randrange(len(content) + 1)


def _flip(content, rng):
    if not content:
        return content
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content, rng):
    place = _place(content, rng)
    return rng.choice((content[:place], content[place:]))


def _drop(content, rng):
    a, b = sorted((_place(content, rng), _place(content, rng)))
    return content[:a] + content[min(b, a + 64) :]


def _repeat(content, rng):
    a, b = sorted((_place(content, rng), _place(content, rng)))
    return content[:b] + content[a:b][:4096] * rng.choice((1, 2, 5)) + content[b:]


def _insert(content, rng):
    place = _place(content, rng)
    return content[:place] + rng.choice(BYTES + NUMBERS) + content[place:]


def _number(content, rng):
    """Replace a word by a number, or by another word."""
    words = content.split()
    if not words:
        return content
    word = rng.choice(words)
    place = content.find(word, _place(content, rng))
    if place < 0:
        place = content.find(word)
    other = rng.choice(NUMBERS) if rng.random() < 0.6 else rng.choice(words)
    return content[:place] + other + content[place + len(word) :]


def _integer(content, rng):
    """Replace some bytes by a binary integer."""
    form, value = rng.choice("<>") + rng.choice("HIQ"), rng.choice((0, 1, 2**15, 2**31, 2**62))
    size = struct.calcsize(form)
    if len(content) < size:
        return content
    place = rng.randrange(len(content) - size + 1)
    number = struct.pack(form, value % 2 ** (8 * size))
    return content[:place] + number + content[place + size :]


_BLIND = [_flip, _flip, _cut, _drop, _repeat, _insert, _number, _number, _integer]


class Member(NamedTuple):
    """One array of an archive as bytes: its entry in the file, and in the directory."""

    local: bytes
    entry: bytes


def spoil_archive(content: bytes, rng: random.Random, sealed: bool) -> bytes:
    """Change the header or an array of our archive, which remains a valid archive."""
    header, members = unpack(content)[0], dict(_members(content))
    paths = _header_paths(content)
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        if not members or rng.random() < 0.5:
            header = _replaced(header, rng.choice(paths), rng.choice(_VALUES_OR_NONE))
            paths = list(_paths(header))
        else:
            name = rng.choice(list(members))
            members[name] = rng.choice(_variants(content, name))
            if rng.random() < 0.1:
                del members[name]
    return join(header, members.values(), sealed)


@lru_cache(1024)
def _header_paths(content: bytes) -> list:
    return list(_paths(unpack(content)[0]))


@lru_cache(1024)
def _members(content: bytes) -> dict[str, Member]:
    return {name: _member(name, array) for name, array in unpack(content)[1].items()}


@lru_cache(4096)
def _variants(content: bytes, name: str) -> list[Member]:
    return [_member(name, array) for array in spoiled_arrays(unpack(content)[1][name])]


def prime(content: bytes) -> None:
    """Build all members from which mutants of an archive are assembled."""
    _header_paths(content)
    for name in _members(content):
        _variants(content, name)


def _member(name: str, array) -> Member:
    """Return an array as `write_archive` writes it, for any position in the archive."""
    stream = io.BytesIO()
    files.write_archive(stream, {}, {name: array})
    whole = stream.getvalue()
    with zipfile.ZipFile(stream) as archive:
        begin, end = archive.infolist()[1].header_offset, archive.start_dir
    entry = whole.index(b"PK\x01\x02", end + 4)  # after the signature of the header
    return Member(whole[begin:end], whole[entry : whole.rindex(b"PK\x05\x06")])


_LOCAL, _ENTRY, _END = "<4s5H3I2H", "<4s6H3I5H2I", "<4s4H2IH"  # the records of a zip file


def join(header, members: Iterable[Member], sealed: bool) -> bytes:
    """Assemble an archive from existing members, fast."""
    text, name = json.dumps(header).encode(), b"header.json"
    said = zlib.crc32(text), len(text), len(text), len(name), 0
    parts = [struct.pack(_LOCAL, b"PK\x03\x04", 20, 0, 0, 0, 33, *said), name, text]
    rest = 0, 0, 0, 0o600 << 16, 0
    entries = [struct.pack(_ENTRY, b"PK\x01\x02", 788, 20, 0, 0, 0, 33, *said, *rest), name]
    place, count = sum(map(len, parts)), 1
    for member in members:
        entries += [member.entry[:42], struct.pack("<I", place), member.entry[46:]]
        parts.append(member.local)
        place, count = place + len(member.local), count + 1
    directory = b"".join(entries)
    parts += [
        directory,
        struct.pack(_END, b"PK\x05\x06", 0, 0, count, count, len(directory), place, 0),
    ]
    whole = b"".join(parts)
    if sealed:
        whole += f"\n{hashlib.blake2b(whole, digest_size=32).hexdigest()}\n".encode()
    return whole


def spoil_json(content: bytes, rng: random.Random) -> bytes:
    """Change one to four values of a JSON file, which remains valid."""
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        paths = list(_paths(value))
        if not paths:
            break
        value = _replaced(value, rng.choice(paths), rng.choice(_VALUES_OR_NONE))
    return json.dumps(value).encode()


@lru_cache(1024)
def unpack(content: bytes):
    """Return the header and the arrays of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        header = json.loads(archive.read("header.json"))
        arrays = {
            name.removesuffix(".npy"): np.lib.format.read_array(archive.open(name))
            for name in archive.namelist()
            if name != "header.json"
        }
    return header, arrays


def adopt(request: bytes, model: bytes) -> bytes:
    """Return a checkpoint's request that names another model."""
    found = hashlib.blake2b(model, digest_size=32).hexdigest()
    return join(unpack(request)[0] | {"model": found}, _members(request).values(), sealed=True)


def pack(header, arrays, sealed) -> bytes:
    """Build an archive as `write_arrays` writes it."""
    stream = io.BytesIO()
    files.write_archive(stream, header, arrays, sealed)
    return stream.getvalue()


def headers(header):
    """Yield the header with each field replaced by each of `VALUES`, or dropped."""
    for path in _paths(header):
        for value in VALUES:
            yield _replaced(header, path, value)
        yield _replaced(header, path, _GONE)


_GONE = object()
_VALUES_OR_NONE = [*VALUES, _GONE]


def _paths(value, before=()):
    if before:
        yield before
    children = {}
    if isinstance(value, dict):
        children = value
    elif isinstance(value, list):
        children = dict(enumerate(value[:3]))
    for key, child in children.items():
        yield from _paths(child, (*before, key))


def _replaced(value, path, new):
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    child = _replaced(copy[key], rest, new)
    if child is _GONE:
        del copy[key]
    else:
        copy[key] = child
    return copy


def spoiled_arrays(array):
    """Yield arrays of another type, another shape, or with invalid values."""
    whole = np.zeros(array.shape, np.int64)
    if array.dtype.kind in "biuf":
        whole = np.nan_to_num(array, posinf=0, neginf=0).clip(-1e18, 1e18).astype(np.int64)
    for kind in ("f8", "f4", "c16", "i8", "u8", "i1", "?", "m8[s]", "M8[s]", "S3", "U2"):
        yield whole.astype(kind)
    yield np.zeros(array.shape, "V5")
    yield np.zeros((), array.dtype)
    yield np.zeros((0, 10**9), array.dtype)
    yield array[None]
    yield array[..., None]
    yield np.tile(array.ravel(), 2)
    if array.ndim:
        yield from (array.ravel(), array[:1], array[:0])
    if array.dtype.kind in "iuf":
        limits = (np.iinfo if array.dtype.kind in "iu" else np.finfo)(array.dtype)
        special = (np.nan, np.inf, -1) if array.dtype.kind == "f" else ()
        for value in (limits.min, limits.max, 0, 1, *special):
            yield np.full_like(array, value)
            if array.size:
                changed = array.copy()
                changed.flat[0] = value
                yield changed
