"""Files packed by Unix ``compress`` (.Z), which the UCI archive still has."""

from __future__ import annotations

_CLEAR = 256


def unpack_lzw(data: bytes, most: int | None = None) -> bytes:
    """Return the unpacked content; codes of 9 to 16 bits, written in groups of eight.

    It ends after ``most`` bytes, and a few more, if that is given.
    """
    if data[:2] != b"\x1f\x9d":
        raise ValueError("not a .Z file")
    largest, blocks = data[2] & 0x1F, bool(data[2] & 0x80)
    if not 9 <= largest <= 16:
        raise ValueError(f"a .Z file with codes of {largest} bits")
    start: list[bytes] = [bytes([value]) for value in range(256)] + [b""] * blocks
    words, previous, output, size = list(start), b"", [], 0
    width, group, place = 9, 24, 24  # places are bits; a group starts where the width changed
    while place + width <= 8 * len(data) and (most is None or size < most):
        first = place >> 3
        window = int.from_bytes(data[first : first + 4], "little")
        code = (window >> (place & 7)) & ((1 << width) - 1)
        place += width
        if blocks and code == _CLEAR:
            group = place = _next_group(place, group, width)
            words, previous, width = list(start), b"", 9
            continue
        if code < len(words):
            word = words[code]
        elif code == len(words) and previous:
            word = previous + previous[:1]
        else:
            raise ValueError("a .Z file with a code that was not defined")
        output.append(word)
        size += len(word)
        if previous and len(words) < 1 << largest:
            words.append(previous + word[:1])
            if len(words) == 1 << width and width < largest:
                group = place = _next_group(place, group, width)
                width += 1
        previous = word
    return b"".join(output)


def _next_group(place: int, group: int, width: int) -> int:
    size = 8 * width
    return group + -(-(place - group) // size) * size
