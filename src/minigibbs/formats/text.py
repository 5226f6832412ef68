"""Text files of numbers, plain or compressed: read with limits, written atomically."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import FormatError, TooLargeError
from minigibbs.system import memory
from minigibbs.system.files import check_source, write_whole

_BLOCK = 2**20  # bytes per read
_TAKEN = 64  # largest number of bytes of memory that reading needs per byte of text
_RATIO = 200  # largest expansion of a compressed file
_HARMLESS = 2**24  # beyond this number of bytes
_XZ_MEMORY = 2**28  # bytes for the xz decoder; `xz -9` needs a quarter of it


def read_text(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz or .xz."""
    check_source(path, "a text file")
    ending, packed = Path(path).suffix, os.path.getsize(path)
    most, blocks, size = memory.HARMLESS // _TAKEN, [], 0
    try:
        for block in _blocks(path, ending):
            size += len(block)
            if size > most and size > (most := memory.available() // _TAKEN):
                raise TooLargeError(
                    f"{path}: there is memory to read {memory.readable(most)} of text, but it "
                    "holds more; use a machine with more memory"
                )
            if ending in _OPEN and size > max(_HARMLESS, _RATIO * packed):
                raise FormatError(
                    f"{path}: it grows to more than {_RATIO} times its size; "
                    "decompress it yourself if you trust it"
                )
            blocks.append(block)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise FormatError(f"{path}: damaged, or not a {ending} file ({error})") from error
    return b"".join(blocks)


def write_text(path: str | os.PathLike[str], pieces: Iterable[str]) -> None:
    """Write text atomically, compressed if the name ends in .gz or .xz."""

    def write(stream: IO[bytes]) -> None:
        with _packing(stream, Path(path).suffix) as target:
            for piece in pieces:
                target.write(piece.encode())

    write_whole(path, write)


def without_comments(text: bytes) -> tuple[bytes, list[bytes]]:
    r"""Return the text with blanked lines that begin with a word `c`, and these lines.

    >>> without_comments(b"c hello\n1 2\n")
    (b'\n1 2\n', [b'c hello'])
    """
    lines = text.split(b"\n")
    comments = [line for line in lines if line.split(None, 1)[:1] == [b"c"]]
    if not comments:
        return text, []
    kept = (b"" if line.split(None, 1)[:1] == [b"c"] else line for line in lines)
    return b"\n".join(kept), comments


class Numbers:
    """The numbers of a text file in order; errors name the line.

    Parameters
    ----------
    path
        The file; all its words are finite numbers, except an opening.
    opening
        Alternatives of the file's first words, all with the same number of words.
    text
        The content of the file, if already read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        opening: tuple[str, ...] = (),
        text: bytes | None = None,
    ) -> None:
        self._path, self._text = path, read_text(path) if text is None else text
        words = self._text.split()
        self._skipped = len(opening[0].split()) if opening else 0  # words before the first number
        self._next = 0
        begun = words[: self._skipped]
        if opening and begun not in [phrase.encode().split() for phrase in opening]:
            raise self._error(f"expected {' or '.join(opening)}, got {_shown(begun)}", 0)
        self._numbers = self._parse(words[self._skipped :])

    @property
    def left(self) -> int:
        """The number of remaining numbers."""
        return len(self._numbers) - self._next

    def take(self, count: int, what: str) -> NDArray[np.float64]:
        """Return the next numbers; `what` describes them in errors."""
        if count > self.left:
            raise self.error(
                f"expected {what}; it takes {count:,} more, but {self.left:,} are left"
            )
        self._next += count
        return self._numbers[self._next - count : self._next]

    def integers(self, count: int, what: str, least: int, most: int) -> list[int]:
        """Return the next numbers as integers within bounds."""
        values = self.take(count, what).tolist()
        for place, value in enumerate(values):
            if not (value.is_integer() and least <= value <= most):
                bounds = f"{least}" if least == most else f"an integer from {least} to {most}"
                raise self.error(f"expected {what}: {bounds}, got {value:g}", back=count - place)
        return [int(value) for value in values]

    def integer(self, what: str, least: int, most: int) -> int:
        """Return the next number as an integer within bounds."""
        return self.integers(1, what, least, most)[0]

    def refuse_negative(self, what: str) -> None:
        """Raise an error if one of the remaining numbers is negative."""
        negative = np.flatnonzero(self._numbers[self._next :] < 0)
        if len(negative):
            self._next += int(negative[0])
            raise self.error(f"expected {what}: at least 0, got {self._numbers[self._next]:g}")

    def end(self) -> None:
        """Raise an error if there are remaining numbers."""
        if self.left:
            raise self.error(f"expected the end of the file, but {self.left:,} numbers are left")

    def error(self, message: str, back: int = 0) -> FormatError:
        """Return an error at the next number, or at a number before it."""
        return self._error(message, self._next - back + self._skipped)

    def _parse(self, words: list[bytes]) -> NDArray[np.float64]:
        try:
            values = np.fromiter(map(float, words), np.float64, len(words))
        except ValueError:
            values = np.full(1, np.nan)
        if np.isfinite(values).all() and b"_" not in self._text:  # Python reads 1_000 as 1000
            return values
        wrong = next(k for k, word in enumerate(words) if not _is_number(word))
        message = f"expected a finite number, got {_shown(words[wrong:])}"
        raise self._error(message, wrong + self._skipped)

    def _error(self, message: str, word: int) -> FormatError:
        found = next(islice(re.finditer(rb"\S+", self._text), word, None), None)
        place = len(self._text) if found is None else found.start()
        line = self._text.count(b"\n", 0, place) + 1
        return FormatError(f"{self._path}, line {line}: {message}")


def _packing(stream: IO[bytes], ending: str) -> AbstractContextManager[Any]:
    if ending == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    return lzma.LZMAFile(stream, "wb") if ending == ".xz" else nullcontext(stream)


def _blocks(path: str | os.PathLike[str], ending: str) -> Iterator[bytes]:
    """Yield the content in blocks of limited size."""
    with open(path, "rb") as stream:
        yield from _OPEN.get(ending, _plain)(stream)


def _plain(stream: Any) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def _gunzip(stream: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=stream) as unpacked:
        yield from _plain(unpacked)


def _unxz(stream: IO[bytes]) -> Iterator[bytes]:
    decoder = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
    while not decoder.eof:
        data = stream.read(_BLOCK) if decoder.needs_input else b""
        if decoder.needs_input and not data:
            raise EOFError("it ends before its end-of-stream marker")
        yield decoder.decompress(data, _BLOCK)
    if decoder.unused_data or stream.read(1):
        raise lzma.LZMAError("there are data after its end-of-stream marker")


_OPEN = {".gz": _gunzip, ".xz": _unxz}


def _is_number(word: bytes) -> bool:
    try:
        return bool(np.isfinite(float(word))) and b"_" not in word
    except ValueError:
        return False


def _shown(words: list[bytes]) -> str:
    """Return the first word for an error message."""
    if not words:
        return "the end of the file"
    text = words[0][:20].decode("ascii", "backslashreplace")
    return repr(text + ("..." if len(words[0]) > 20 else ""))
