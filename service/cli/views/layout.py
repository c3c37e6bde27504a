"""What every view is made of: titled sections, tables, sentences, small plots."""

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BLOCKS = " ▁▂▃▄▅▆▇█"
LYING_BLOCKS = " ▏▎▍▌▋▊▉█"
PLOT_ROWS = 5  # chosen: forty steps of height, and two plots still fit on a screen


def section(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    """A bold title with its parts indented below."""
    yield Text(f"\n{title}", style="bold")
    for part in parts:
        yield Padding(part, (0, 0, 0, 2), expand=False)


def listed(title: str, sentences: Iterable[str]) -> Iterator[RenderableType]:
    """A section of sentences; nothing where there are none."""
    if found := [*sentences]:
        yield from section(title, lines(found))


def headed(first: str, *others: str, style: str) -> Text:
    """A first line in this style, and plain ones below it; those that are empty are left out."""
    text = Text(first, style=style)
    for line in filter(None, others):
        text.append(f"\n{line}", style="default not bold")
    return text


def lines(sentences: Iterable[str]) -> Table:
    """Sentences with hanging indentation."""
    grid = Table.grid(padding=(0, 1))
    for sentence in sentences:
        grid.add_row("-", Text(sentence))
    return grid


def table_of(*, texts: Sequence[str], numbers: Sequence[str] = (), notes: Sequence[str] = ()) -> Table:
    """An empty table: columns of text, then columns of figures, then columns of text again."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="dim", show_edge=False)
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in notes:
        table.add_column(heading, overflow="fold")
    return table


def bars(values: Sequence[float | None], *, labels: tuple[str, str]) -> Text:
    """A bar per value on a scale from 0, the first and the last named below; `?` where there is none."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    eighths = [None if value is None else round(8 * PLOT_ROWS * value / top) for value in values]
    axis = [f"{top:.4g}", *[""] * (PLOT_ROWS - 2), "0"]
    width = max(len(label) for label in axis)
    drawn = []
    for row in range(PLOT_ROWS):
        floor = 8 * (PLOT_ROWS - 1 - row)
        cells = (_cell(value, floor, is_lowest=row == PLOT_ROWS - 1) for value in eighths)
        drawn.append(f"{axis[row]:>{width}} ┤{''.join(cells)}")
    first, last = labels
    gap = max(1, len(values) - len(first) - len(last))
    drawn.append(f"{'':>{width}}  {first}{' ' * gap}{last}")
    return Text("\n".join(drawn))


def bar(value: float, top: float, *, columns: int) -> str:
    """A lying bar, on a scale from 0 to `top`; what is above 0 shows."""
    eighths = round(8 * columns * min(1.0, value / top)) if top > 0 else 0
    eighths = max(eighths, 1 if value > 0 else 0)
    whole, rest = divmod(eighths, 8)
    return LYING_BLOCKS[8] * whole + (LYING_BLOCKS[rest] if rest else "")


def _cell(eighths: int | None, floor: int, *, is_lowest: bool) -> str:
    if eighths is None:
        return "?" if is_lowest else " "
    return BLOCKS[max(0, min(8, eighths - floor))]
