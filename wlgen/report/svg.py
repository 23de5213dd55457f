"""Plots as inline SVG between HTML labels. Places are parts of the plot, 0 to 1, so any width will do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple, TypeAlias

Labels: TypeAlias = Iterable[tuple[float, str]]


class Axis(NamedTuple):
    """A range of values along one side of a plot."""

    low: float
    high: float

    def part(self, value: float) -> float:
        """Return the place of a value, 0 at low and 1 at high."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Return at most about `most` round values of the range."""
        step, span = 1e-9, self.high - self.low
        while span / step > most:
            for times in (2, 2.5, 2):  # 1, 2, 5, 10
                step *= times
                if span / step <= most:
                    break
        first = -int(-self.low / step // 1)
        return [n * step for n in range(first, int(self.high / step + 1e-9) + 1)]


def plot(shapes: Iterable[str], *, height: int, title: str, x: Labels, y: Labels) -> str:
    """Return a plot of `height` CSS pixels: labels at parts of its sides (y from the bottom), and shapes."""
    ylabels = "".join(f'<span style="top:{_percent(1 - at)}">{escape(text)}</span>' for at, text in y)
    xlabels = "".join(f'<span style="left:{_percent(at)}">{escape(text)}</span>' for at, text in x)
    return (
        f'<div class="plot"><div class="y" aria-hidden="true">{ylabels}</div>'
        f'<svg role="img" aria-label="{escape(title, quote=True)}" height="{height}">{"".join(shapes)}</svg>'
        f'<div class="x" aria-hidden="true">{xlabels}</div></div>'
    )


def level(y: float, kind: str) -> str:
    """Return a horizontal line."""
    place = _percent(1 - y)
    return f'<line class="{kind}" x1="0" x2="100%" y1="{place}" y2="{place}"/>'


def dot(x: float, y: float, kind: str, *, radius: float, tip: str = "") -> str:
    """Return a dot; one with a tip is a finding's, and square, so that colour is not all that tells."""
    if not tip:
        return f'<circle class="{kind}" cx="{_percent(x)}" cy="{_percent(1 - y)}" r="{radius:g}"/>'
    # A square is centred by a shift in pixels, which percentages cannot say.
    side = 2 * radius + 1
    shift = f"translate({-side / 2:g} {-side / 2:g})"
    place = f'x="{_percent(x)}" y="{_percent(1 - y)}" width="{side:g}" height="{side:g}"'
    return f'<rect class="{kind}" {place} transform="{shift}"><title>{escape(tip)}</title></rect>'


def box(x: Sequence[float], y: Sequence[float], kind: str, *, tip: str = "") -> str:
    """Return a rectangle from x[0] to x[1] and y[0] to y[1]."""
    place = f'x="{_percent(x[0])}" y="{_percent(1 - y[1])}"'
    size = f'width="{_percent(x[1] - x[0])}" height="{_percent(y[1] - y[0])}"'
    body = f"><title>{escape(tip)}</title></rect>" if tip else "/>"
    return f'<rect class="{kind}" {place} {size}{body}'


def steps(heights: Sequence[float], kind: str) -> str:
    """Return an area whose top is one height, 0 to 1, for each of equal parts of the width."""
    width = 1000 / len(heights)
    path = [f"M0 1000V{1000 - 1000 * heights[0]:.1f}"]
    for number, height in enumerate(heights):
        path.append(f"V{1000 - 1000 * height:.1f}H{(number + 1) * width:.1f}")
    shape = f'<path class="{kind}" d="{"".join(path)}V1000Z"/>'
    return f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%">{shape}</svg>'


def lane(heights: Sequence[float], y: Sequence[float], kind: str) -> str:
    """Return `steps` between y[0] and y[1] of a plot, such as the lane of one rank."""
    place = f'y="{_percent(1 - y[1])}" width="100%" height="{_percent(y[1] - y[0])}"'
    return f"<svg {place}>{steps(heights, kind)}</svg>"


def line(heights: Sequence[float], kind: str) -> str:
    """Return a line of one height, 0 to 1, for each of equal parts of the width."""
    width = 1000 / len(heights)
    tops = [f"{1000 - 1000 * height:.1f}H{(number + 1) * width:.1f}" for number, height in enumerate(heights)]
    shape = f'<path class="{kind}" d="M0 {"V".join(tops)}"/>'
    return f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%">{shape}</svg>'


def words(x: float, y: float, text: str) -> str:
    """Return text in the middle of a place."""
    return f'<text class="words" x="{_percent(x)}" y="{_percent(1 - y)}">{escape(text)}</text>'


def legend(*items: tuple[str, str]) -> str:
    """Return what each kind of mark means."""
    return "".join(f'<span class="item"><i class="key {kind}"></i>{name}</span>' for kind, name in items)


def _percent(part: float) -> str:
    return f"{100 * part:.2f}".rstrip("0").rstrip(".") + "%"
