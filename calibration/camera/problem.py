"""Why a picture cannot be used for a calibration."""

from dataclasses import dataclass
from enum import StrEnum


class ProblemKind(StrEnum):
    """The kinds of problems, by the words that a count of them shows."""

    UNREADABLE = "cannot be read as an image"
    TOO_SMALL = "the image is too small"
    NOT_FOUND = "board not found"
    FEW_CORNERS = "too few corners"
    ONE_LINE = "corners on one line"
    OTHER_BOARD = "not this board"
    BLURRED = "blurred"
    REPEATED = "a view that another picture has, too"
    REPROJECTION = "reprojection error"


@dataclass(frozen=True)
class Problem:
    """One problem: its kind, and the sentence for the user about this picture ("": the words of the kind)."""

    kind: ProblemKind
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.kind.value
