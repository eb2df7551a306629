"""Random changes of valid inputs; the same random state gives the same changes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

TOKENS = (
    b"\0",
    b"\r",
    b"\r\n",
    b"\n",
    b"\n\n",
    b"\t",
    b"\t\t",
    b" ",
    b'"',
    b'""',
    b"\\",
    b"'",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\xaf",
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\xc2\xa0",
    b"\xe3\x80\x80",
    b"\x1c",
    b"\x0b",
    b"\xe2\x96\x81",
    b"\\ud800",
    b"\\u0000",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"NaN",
    b"1e999",
    b"-1",
    b"0",
    b"9" * 20,
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"a" * 5000,
    b"# ",
    b"#",
    b"-DOCSTART-",
    b"1-2",
    b"1.1",
    b"0-0",
    b"-1--1",
    b"p",
    b"../",
    b"/etc",
    b"%s",
    b"{0}",
    b"*",
    b"en:",
    b"\xd9\xa3",
    b"\xc2\xb2",
    b"\xef\xbc\x91",
    b"<s>",
    b"</s>",
    b"<mask>",
    b"##",
    b"\x28\xb5\x2f\xfd",
    b"\x1f\x8b\x08",
    b"\xfd7zXZ\0",
    b"PAR1",
)
"""Byte strings that are difficult for readers: line ends of all kinds, invalid UTF-8, parts of
JSON, large numbers, digits that are not ASCII, special tokens, headers of compressed files."""

NUMBERS = (
    0,
    1,
    2,
    127,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63,
    2**64 - 1,
)
VALUES = (
    None,
    True,
    False,
    -1,
    0,
    1,
    1.5,
    1e308,
    2**31,
    2**63,
    10**30,
    "",
    "x",
    "0",
    "\ud800",
    [],
    {},
    [[]],
    ["x"],
    [0],
    {"x": {}},
)

Change = Callable[[bytes, random.Random], bytes]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Changes the content one to four times."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        content = draw.choice(_CHANGES)(content, draw)
    return content


def _draw_place(content: bytes, draw: random.Random) -> int:
    return draw.randrange(len(content) + 1)


def _draw_slice(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = _draw_place(content, draw)
    return start, min(len(content), start + draw.choice((1, 2, 4, 8, 16, 64, 256)))


def _flip_bit(content: bytes, draw: random.Random) -> bytes:
    if not content:
        return content
    changed, place = bytearray(content), draw.randrange(len(content))
    changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _replace_byte(content: bytes, draw: random.Random) -> bytes:
    start = _draw_place(content, draw)
    return content[:start] + bytes([draw.randrange(256)]) + content[start + 1 :]


def _delete_slice(content: bytes, draw: random.Random) -> bytes:
    start, stop = _draw_slice(content, draw)
    return content[:start] + content[stop:]


def _repeat_slice(content: bytes, draw: random.Random) -> bytes:
    start, stop = _draw_slice(content, draw)
    at = _draw_place(content, draw)
    return content[:at] + content[start:stop] * draw.choice((1, 2, 50)) + content[at:]


def _insert_token(content: bytes, draw: random.Random) -> bytes:
    at, token = _draw_place(content, draw), draw.choice(TOKENS)
    return content[:at] + token + content[at + draw.choice((0, 0, len(token), 1)) :]


def _drop_end(content: bytes, draw: random.Random) -> bytes:
    return content[: _draw_place(content, draw)]


def _drop_start(content: bytes, draw: random.Random) -> bytes:
    return content[_draw_place(content, draw) :]


def _append_bytes(content: bytes, draw: random.Random) -> bytes:
    return content + draw.randbytes(draw.choice((1, 7, 100)))


def _replace_content(content: bytes, draw: random.Random) -> bytes:
    return draw.choice((b"", content + content, content * 20, b"\n", b"\0" * 64, content[::-1]))


def _change_lines(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
    how = draw.randrange(3)
    if how == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif how == 1:
        del lines[a]
    else:
        lines.insert(a, lines[b])
    return b"\n".join(lines)


def _change_encoding(content: bytes, draw: random.Random) -> bytes:
    """Encodes the text, or the text after its first line, in another encoding, some with a BOM."""
    text = content.decode("utf-8", "replace")
    at = draw.choice((0, 0, 0, text.find("\n") + 1))
    names = ("utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be", "utf-32", "latin-1")
    return text[:at].encode() + text[at:].encode(draw.choice(names), "replace")


def _change_line_ends(content: bytes, draw: random.Random) -> bytes:
    """Changes line ends, or adds byte order marks or blank lines."""
    ends = (b"\r", b"\r\n", b"\n\n", b"\n\xef\xbb\xbf", b"\t\n", b"\n" + b"x" * (1 << 20) + b"y\n")
    return content.replace(b"\n", draw.choice(ends), draw.choice((-1, -1, 1, 3)))


def _change_number(content: bytes, draw: random.Random) -> bytes:
    """Changes a number that is written in digits."""
    numbers = list(re.finditer(rb"\d+", content[:100_000]))
    if not numbers:
        return _change_integer(content, draw)
    place = draw.choice(numbers)
    new = str(draw.choice((*NUMBERS, int(place[0][:18]) + 1))).encode()
    return content[: place.start()] + draw.choice((b"", b"-")) + new + content[place.end() :]


def _change_integer(content: bytes, draw: random.Random) -> bytes:
    """Changes bytes that may be a binary number."""
    size, start = draw.choice((1, 2, 4, 8)), _draw_place(content, draw)
    number = draw.choice(NUMBERS) % 256**size
    new = number.to_bytes(size, draw.choice(("little", "big")))
    return content[:start] + new + content[start + size :]


def _change_json(content: bytes, draw: random.Random) -> bytes:
    """Changes or removes a JSON value, in a file, a line, or a safetensors header."""
    if content[8:9] == b"{" and (size := int.from_bytes(content[:8], "little")) < len(content):
        header = _change_json(content[8 : 8 + size], draw)
        return len(header).to_bytes(8, "little") + header + content[8 + size :]
    try:
        tree = json.loads(content)
    except ValueError:
        lines = content.split(b"\n")
        at = draw.randrange(len(lines))
        try:
            tree = json.loads(lines[at])
        except (ValueError, RecursionError):
            return _insert_token(content, draw)
        lines[at] = _dump(_change_tree(tree, draw))
        return b"\n".join(lines)
    except RecursionError:
        return _insert_token(content, draw)
    return _dump(_change_tree(tree, draw))


def _dump(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def _change_tree(tree: Any, draw: random.Random) -> Any:
    if not isinstance(tree, (dict, list)) or not tree or draw.random() < 0.1:
        return draw.choice(VALUES)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = draw.choice(keys)
    how = draw.random()
    if how < 0.15:
        del tree[key]
    elif how < 0.25 and isinstance(tree, list):
        tree.insert(key, draw.choice((*VALUES, tree[key])))
    elif how < 0.25:
        tree[draw.choice(("", "x", "\u0000", str(key) + "x"))] = tree[key]
    else:
        tree[key] = _change_tree(tree[key], draw)
    return tree


_CHANGES: tuple[Change, ...] = (
    _flip_bit,
    _flip_bit,
    _replace_byte,
    _delete_slice,
    _repeat_slice,
    _insert_token,
    _insert_token,
    _insert_token,
    _drop_end,
    _drop_start,
    _append_bytes,
    _replace_content,
    _change_lines,
    _change_lines,
    _change_encoding,
    _change_line_ends,
    _change_number,
    _change_number,
    _change_integer,
    _change_json,
    _change_json,
    _change_json,
)
