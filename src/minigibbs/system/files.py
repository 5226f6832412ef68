"""Safe reading and writing of files: atomic writes, and pure data without code."""

from __future__ import annotations

import difflib
import errno
import hashlib
import io
import json
import math
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, MissingFileError, SampleError, TooLargeError
from minigibbs.system import memory
from minigibbs.system.watch import StopError

_HEADER = "header.json"
_SEAL = 1 + 64 + 1  # bytes at the end of a sealed file: a line with a hexadecimal digest
_LOCAL_HEADER = 30  # bytes of a zip member before its name
_JSON_BYTE = 12  # most bytes of memory per byte of a header: "ab" becomes a string,
_JSON_BRACKET = 64  # and per bracket: {} becomes a dictionary
_NPY_HEADER = 10_012  # most bytes of an .npy file before its data
_ENCRYPTED, _UTF_8 = 0x1, 0x800  # flags of a zip member


def open_plain(path: str | os.PathLike[str], links: bool = True) -> IO[bytes]:
    """Open a regular file for reading; raise `FormatError` for a pipe, a device or a folder.

    Without `links` the path itself must not be a symbolic link. Use this for files in a folder of
    unknown origin. Opening never waits for the other end of a pipe.
    """
    with refusing_odd_files(path):
        return open(path, "rb", opener=partial(_open_plain, links=links))


def open_to_update(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file, created if missing, to read and append; do not follow symbolic links.

    Raise `FormatError` as `open_plain` does, and for a file with a second name (a hard link).
    """
    with refusing_odd_files(path):
        stream = open(path, "a+b", opener=partial(_open_plain, links=False))  # noqa: SIM115
    if os.fstat(stream.fileno()).st_nlink > 1:
        stream.close()
        raise FormatError(
            f"{path}: expected a file with one name, got a hard link; put a copy there"
        )
    return stream


@contextmanager
def refusing_odd_files(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `FormatError` if opening finds a symbolic link or another kind of file."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise
        link = error.errno in (errno.ELOOP, errno.EMLINK)
        found = "a symbolic link" if link else _kind(os.stat(path).st_mode)
        remedy = "put the file itself there, if you trust the link" if link else "give another file"
        raise FormatError(f"{path}: expected a regular file, got {found}; {remedy}") from None


def _open_plain(path: str, flags: int, links: bool) -> int:
    """Open a file descriptor for `open`; raise `OSError` for anything but a regular file."""
    if not links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
    return handle


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a pipe (FIFO)",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise an error if no file can be written there; called before long work."""
    target = Path(path)
    folder = Path(os.path.realpath(target.parent))
    if not folder.is_dir():
        raise SampleError(f"cannot write {path}: there is no folder {folder}; make it first")
    if target.exists() and not target.is_file():
        raise SampleError(f"cannot write {path}: it is not a regular file; give another name")
    if not os.access(folder, os.W_OK):
        raise SampleError(f"cannot write {path}: {folder} is read-only; choose another folder")


def check_source(path: str | os.PathLike[str], what: str) -> None:
    """Raise an error if nothing is there to read; `what` says what was expected."""
    if os.path.lexists(path):
        return
    folder, name = os.path.split(os.path.abspath(path))
    try:
        similar = difflib.get_close_matches(name, os.listdir(folder), n=1)
        found = f"there is no {name} in {folder}"
    except OSError:
        similar, found = [], f"there is no folder {folder}"
    remedy = f"did you mean {similar[0]}?" if similar else "check the name and the folder"
    raise MissingFileError(f"{path}: expected {what}, but {found}; {remedy}")


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file through a temporary one in the same folder, so that no partial file remains.

    If the system refuses, for example on a full disk, its error names the file.
    """
    check_target(path)
    target = Path(path)
    try:
        _write_whole(target, write)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def _write_whole(target: Path, write: Callable[[IO[bytes]], Any]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent or ".")
    try:
        with os.fdopen(handle, "w+b") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the new name to disk as well, if the system can sync folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # for example on Windows
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    write_whole(path, lambda stream: stream.write(text.encode()))


def write_arrays(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    sealed: bool = False,
) -> None:
    """Write arrays and a JSON header as an uncompressed .npz archive that NumPy can read.

    A sealed file ends with a digest of all bytes before it; see `check_seal`.
    """
    write_whole(path, lambda stream: write_archive(stream, header, arrays, sealed))


def write_archive(
    stream: IO[bytes],
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    sealed: bool = False,
) -> None:
    """Write the content of `write_arrays` to a stream."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        # Members have no date: zip cannot represent years before 1980, which some clocks report.
        archive.writestr(zipfile.ZipInfo(_HEADER), json.dumps(header, indent=1))
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    if sealed:
        length = stream.seek(0, os.SEEK_END)
        stream.write(f"\n{_digest(stream, length)}\n".encode())


def digest(path: str | os.PathLike[str], links: bool = True) -> str:
    """Compute BLAKE2b of a file's content, in hexadecimal; for `links` see `open_plain`."""
    with open_plain(path, links) as stream:
        return _digest(stream, _size(stream))


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _digest(stream: IO[bytes], length: int) -> str:
    """Compute BLAKE2b of the first `length` bytes; the stream is then positioned after them."""
    found = hashlib.blake2b(digest_size=32)
    stream.seek(0)
    while length > 0:
        block = stream.read(min(length, 2**20))
        if not block:
            break
        found.update(block)
        length -= len(block)
    return found.hexdigest()


def check_seal(path: str | os.PathLike[str], links: bool = True) -> None:
    """Raise `FormatError` if a sealed file is not byte for byte as it was written."""
    with open_plain(path, links) as stream:
        body = _size(stream) - _SEAL
        found = _digest(stream, body)
        if body < 0 or stream.read() != f"\n{found}\n".encode():
            raise FormatError(f"{path}: torn or changed since it was written (wrong checksum)")


@contextmanager
def refusing_damage(what: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `FormatError` for any error that damaged data cause."""
    try:
        yield
    except (FormatError, TooLargeError, StopError):
        raise
    except MemoryError as error:
        raise TooLargeError(f"{what}: there is not enough memory to read it") from error
    except Exception as error:  # zipfile, json and NumPy raise many kinds of errors
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
        raise FormatError(f"{what}: damaged, or not a minigibbs file ({reason})") from error


def stated_format(path: str | os.PathLike[str], links: bool = True) -> Any:
    """Return the format that a file of `write_arrays` states; None for any other file."""
    with open_plain(path, links) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                _check_members(archive, _size(stream))
                return _read_header(archive, stream)["format"]
        except Exception:  # many kinds of errors; reading the file reports them
            return None


def read_arrays(
    path: str | os.PathLike[str], *expected: str, mapped: bool = False, links: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the result of `write_arrays`; sizes are checked against the file before allocation.

    Mapped arrays stay in the file, and processes of one machine share them; it must not change.
    For `links` see `open_plain`.
    """
    with (
        open_plain(path, links) as stream,
        refusing_damage(path),
        zipfile.ZipFile(stream) as archive,
    ):
        length = _size(stream)
        members = _check_members(archive, length)
        memory.require(0 if mapped else length, f"reading {path}", "use a machine with more")
        header = _read_header(archive, stream)
        if not isinstance(header, dict) or header.get("format") not in expected:
            found = header.get("format") if isinstance(header, dict) else None
            raise FormatError(f"{path}: expected a {expected[-1]} file, got {found!r}")
        arrays = {
            member.filename.removesuffix(".npy"): _read_array(stream, member, path, mapped)
            for member in members
            if member.filename != _HEADER
        }
    return header, arrays


def _check_members(archive: zipfile.ZipFile, length: int) -> list[zipfile.ZipInfo]:
    """Return the members; raise an error unless they are uncompressed and do not overlap.

    `zipfile` trusts the sizes in an archive: a few bytes could request all memory.
    """
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    ends = [member.header_offset for member in members[1:]] + [length]
    for member, end in zip(members, ends, strict=True):
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise ValueError("a minigibbs file is not compressed, but this one is")
        if member.header_offset < 0 or member.header_offset + member.file_size > end:
            raise ValueError(f"{member.filename} overlaps what follows, or the end of the file")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two members of one name")
    return members


def _read_header(archive: zipfile.ZipFile, stream: IO[bytes]) -> Any:
    text = _read_member(stream, archive.getinfo(_HEADER), None)
    size = _JSON_BYTE * len(text) + _JSON_BRACKET * (text.count(b"{") + text.count(b"["))
    memory.require(size, "reading a header", "use a machine with more")
    return json.loads(text)


def _read_array(
    stream: IO[bytes],
    member: zipfile.ZipInfo,
    path: str | os.PathLike[str],
    mapped: bool,
) -> NDArray[Any]:
    name = f"{path}, {member.filename}"
    if not member.filename.endswith(".npy"):
        raise FormatError(f"{name}: a minigibbs file holds {_HEADER} and .npy arrays only")
    with refusing_damage(name):
        content = _read_member(stream, member, _NPY_HEADER if mapped else None)
        head = _array_head(content)
        shape, fortran, dtype = _array_header(content[:head])
        promised, held = math.prod(shape, start=dtype.itemsize), member.file_size - head
        if dtype.hasobject or promised != held:
            raise FormatError(f"{name}: it promises {promised} bytes of {dtype}, but holds {held}")
        order: Literal["C", "F"] = "F" if fortran else "C"
        if mapped and promised:
            place = stream.tell() - len(content) + head
            return np.memmap(stream, dtype, "r", place, shape, order)  # type: ignore[call-overload]
        array = np.frombuffer(content, dtype, offset=head) if promised else np.empty(0, dtype)
        if not array.flags.aligned:  # after a header of odd length, which NumPy does not write
            array = array.copy()
        return array.reshape(shape, order=order)


def _read_member(stream: IO[bytes], member: zipfile.ZipInfo, most: int | None) -> bytes:
    """Return the content of a stored member, or its beginning; check the CRC of whole members.

    `zipfile` reads a member through several layers, which dominates the time for small files.
    """
    stream.seek(member.header_offset)
    fixed = stream.read(_LOCAL_HEADER)
    signature, flags, name, extra = struct.unpack("<4s2xH18x2H", fixed)
    if signature != b"PK\x03\x04" or (flags | member.flag_bits) & _ENCRYPTED:
        raise ValueError("no plain member of an archive")
    written = stream.read(name).decode("utf-8" if flags & _UTF_8 else "cp437")
    if written != member.orig_filename:
        names = f"{member.orig_filename!r} in the directory and {written!r} in its header"
        raise ValueError(f"a member's name is {names}")
    stream.seek(extra, os.SEEK_CUR)
    size = member.file_size if most is None else min(member.file_size, most)
    content = stream.read(size)
    if len(content) < size:
        raise ValueError("cut short")
    if most is None and zlib.crc32(content) != member.CRC:
        raise ValueError("wrong checksum")
    return content


def _array_head(content: bytes) -> int:
    """Return the number of bytes before the data of an .npy file."""
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}[content[:8]]
    size = int.from_bytes(content[8 : 8 + width], "little")
    if size > _NPY_HEADER - 12:
        raise ValueError(f"a header of {size} bytes")
    return 8 + width + size


@lru_cache(4096)
def _array_header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type; cached, because NumPy is slow and headers repeat."""
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    if version == (2, 0):
        read = np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    return shape, fortran, dtype


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
