"""A record of tried mutants in memory that processes share: none counts twice."""

import hashlib
import mmap


class Seen:
    """A table of digests of 64 bits, shared by all processes that are forked after its creation.

    Two errors are rare. Two processes that try a mutant at the same moment may both count it. Among
    a million mutants, two share a digest with a probability of about 1e-7.
    """

    def __init__(self, most: int):
        self._mask = (1 << (4 * most).bit_length()) - 1  # at most a quarter of the entries is used
        self._slots = memoryview(mmap.mmap(-1, 8 * (self._mask + 1))).cast("Q")
        self._most = most

    def add(self, content: dict[str, bytes]) -> bool:
        """Record some files; return whether they are new."""
        found, slots, mask = self._digest(content), self._slots, self._mask
        for place in range(found & mask, (found & mask) + self._most):
            before = slots[place & mask]
            if before == found:
                return False
            if before == 0:
                slots[place & mask] = found
                return True
        raise MemoryError("the table of what was seen is full")

    @staticmethod
    def _digest(content: dict[str, bytes]) -> int:
        whole = hashlib.blake2b(digest_size=8)
        for name, data in content.items():
            whole.update(b"%s %d " % (name.encode(), len(data)))
            whole.update(data)
        return int.from_bytes(whole.digest(), "little") or 1  # 0 is an empty entry
