"""A figure of the benchmark, and the table of figures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number with the reference that was measured in the same run.

    against: description of the reference, "" for a figure without one; limit: the largest value that meets the target,
    or with ``at_least`` the smallest; with ``limits_ratio`` the limit applies to the ratio.
    """

    name: str
    value: float
    unit: str
    against: str = ""
    reference: float | None = None
    limit: float | None = None
    at_least: bool = False
    limits_ratio: bool = False

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference if self.reference else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.limit is None:
            return None
        judged = self.ratio if self.limits_ratio else self.value
        return judged >= self.limit if self.at_least else judged <= self.limit

    def row(self) -> str:
        """The figure as a row of a Markdown table."""
        sign = "≥" if self.at_least else "≤"
        target = ""
        if self.limit is not None:
            target = f"{sign} {self.limit:g}{'x' if self.limits_ratio else ' ' + self.unit}"
        reference = "" if self.reference is None else f"{self.against}: {number(self.reference)} {self.unit}"
        ratio = "" if self.ratio is None else f"{number(self.ratio)}x"
        verdict = {True: "yes", False: "**no**", None: ""}[self.met]
        return f"| {self.name} | {number(self.value)} {self.unit} | {reference} | {ratio} | {target} | {verdict} |"


def number(value: float) -> str:
    """About three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    digits = 2 if abs(value) >= 1 else 3
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.{digits}f}"


HEADER = "| figure | measured | against | ratio | target | met |\n|---|---|---|---|---|---|"


def table(figures: list[Figure]) -> str:
    """A Markdown table."""
    return "\n".join([HEADER, *(figure.row() for figure in figures)])
