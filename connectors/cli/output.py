"""What is said of counts from which nobody learns anything: of a constant that is nearer to the truth."""

from __future__ import annotations

from connectors.reports.quality import Quality

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def marked_poor(release: str, audience: str, level: str, expected: Quality) -> str:
    """Return a line on one level of a release that is worse than a constant: which one, and what follows."""
    what = f"{release} for {audience}: {level}s of {people(expected.mean)} are not worth publishing at this price."
    mine = f"The mean error, {expected.error:.2f}, is more than"
    if expected.worse_than_zero:
        why = f"{mine} the mean count, {expected.mean:.2f}. Always saying 0 would be nearer to the truth."
    else:
        why = f"{mine} that of always saying the median, {expected.median:.2f}."
    return f"[bold]![/bold] {what} {why}"


def people(mean: float) -> str:
    """Return a mean count in words: ``three people``."""
    number = round(mean)
    if number < 1:
        return "less than one person"
    return f"{NUMBERS[number] if number < len(NUMBERS) else number} {'person' if number == 1 else 'people'}"
