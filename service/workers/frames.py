"""What a worker and its solver process say to each other: pickled objects, each behind its length.

Both ends are this program; nothing from outside is ever unpickled.
"""

import pickle
import struct
from asyncio import StreamReader
from typing import Any, BinaryIO, Final

_LENGTH: Final = struct.Struct(">Q")


def packed(message: object) -> bytes:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


def read(stream: BinaryIO) -> Any:
    """Reads the next message. Raises EOFError at the end of the stream."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, length))


async def receive(stream: StreamReader) -> Any:
    """Reads the next message. Raises asyncio.IncompleteReadError at the end of the stream."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return pickle.loads(await stream.readexactly(length))


def _exactly(stream: BinaryIO, length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content
