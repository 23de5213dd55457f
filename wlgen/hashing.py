"""sha256 in a background thread: hashing leaves the interpreter free, and is half the work of a copy."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Executor, Future

BLOCK = 1 << 16  # bytes handed to the thread at a time: hundreds of files may be open at once
WAITING = 4  # blocks of one hash that may wait for it


class BackgroundHash:
    """The sha256 of a stream of blocks, in order; several streams may share the thread."""

    def __init__(self, thread: Executor) -> None:
        self._thread = thread  # of one worker: blocks must be hashed in order
        self._digest = hashlib.sha256()
        self._blocks: list[bytes] = []
        self._size = 0
        self._waiting: deque[Future[None]] = deque()

    def update(self, block: bytes) -> None:
        """Add a block; waits where the thread is far behind."""
        self._blocks.append(block)
        self._size += len(block)
        if self._size >= BLOCK:
            self._hand_over()

    def hexdigest(self) -> str:
        """Return the digest of all blocks so far."""
        self._hand_over()
        while self._waiting:
            self._waiting.popleft().result()
        return self._digest.hexdigest()

    def _hand_over(self) -> None:
        self._waiting.append(self._thread.submit(self._add, self._blocks))
        self._blocks, self._size = [], 0
        if len(self._waiting) > WAITING:
            self._waiting.popleft().result()

    def _add(self, blocks: list[bytes]) -> None:
        if blocks:
            self._digest.update(blocks[0] if len(blocks) == 1 else b"".join(blocks))
