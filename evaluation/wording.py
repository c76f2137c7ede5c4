"""Numbers as people read them."""

import math

_DIGITS = 3


def number(value: float, signed: bool = True) -> str:
    """Three significant digits with a true minus sign; ``–`` is missing, ``∞`` unbounded.

    >>> number(1.23456), number(-0.5, signed=False), number(1234.5), number(2e-7), number(0.0)
    ('+1.23', '−0.500', '+1234', '+2.00e-07', '0')
    >>> number(float("nan")), number(float("-inf"))
    ('–', '−∞')
    """
    if math.isnan(value):
        return "–"
    sign = "−" if value < 0 else "+" if signed and value > 0 else ""
    size = abs(value)
    if math.isinf(size):
        return f"{sign}∞"
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e6:
        return f"{sign}{size:.{_DIGITS - 1}e}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(size)))
    return f"{sign}{size:.{decimals}f}"


def interval(low: float, high: float) -> str:
    """Both ends in words; says so where there is none.

    >>> interval(-0.5, 1.25), interval(float("-inf"), float("inf")), interval(float("nan"), 1.0)
    ('−0.500 to 1.25', '−∞ to ∞', 'unknown')
    """
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    return f"{number(low, signed=False)} to {number(high, signed=False)}"
