"""Figures for people: Markdown tables, and the middle and the far end of many times."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of all lies; 0.0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def p50_p99(values: Sequence[float]) -> tuple[float, float]:
    """Both, in the unit of the values."""
    return percentile(values, 0.5), percentile(values, 0.99)


def ms(seconds: float) -> str:
    """Seconds as milliseconds."""
    return f"{1000 * seconds:.2f}" if seconds < 0.1 else f"{1000 * seconds:.0f}"
