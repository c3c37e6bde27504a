"""What every view is made of: titled sections, tables, sentences, small plots."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

BLOCKS = " ▁▂▃▄▅▆▇█"
LYING_BLOCKS = " ▏▎▍▌▋▊▉█"
GAP = 3  # columns between two columns of a table
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


class FittedTable(Table):
    """A table that splits no word, however narrow the terminal.

    It wraps cells between words, stands closer, or does without columns that only decorate; where the longest words
    do not fit side by side even so, each row is lines of its own.
    """

    dispensable: tuple[int, ...] = ()
    """Numbers of columns that narrow terminals do without, the first of them first."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for dropped in range(len(self.dispensable) + 1):
            without = self.dispensable[:dropped]
            chosen = [index for index in range(len(self.columns)) if index not in without]
            for gap in (GAP, GAP - 1):
                widths = self._widths(chosen, options.max_width, gap)
                if widths is not None:
                    yield from self._fitted(chosen, widths, gap)._as_usual(console, options)
                    return
        yield from self._as_records(options.max_width)

    def _as_usual(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return super().__rich_console__(console, options)

    def _fitted(self, chosen: Sequence[int], widths: Sequence[int], gap: int) -> "FittedTable":
        """A copy with these columns, so wide and so far apart."""
        found = copy(self)
        found.columns = [
            replace(self.columns[old], width=width, _index=new)
            for new, (old, width) in enumerate(zip(chosen, widths, strict=True))
        ]
        found.padding = (0, 1, 0, gap - 2)
        return found

    def _widths(self, chosen: Sequence[int], most: int, gap: int) -> list[int] | None:
        """A width for each of the columns, none below its longest word; None where these do not fit."""
        columns = [self.columns[i] for i in chosen]
        cells = [[_text(column.header), *map(_text, column.cells)] for column in columns]
        widths = [max(cell_len(line) for text in texts for line in text.split("\n")) for texts in cells]
        least = [
            width if column.no_wrap else max(cell_len(word) for text in texts for word in [*text.split(), ""])
            for column, texts, width in zip(columns, cells, widths, strict=True)
        ]
        over = sum(widths) + gap * (len(widths) - 1) - most
        while over > 0:
            loose = [index for index, width in enumerate(widths) if width > least[index]]
            if not loose:
                return None
            widths[max(loose, key=widths.__getitem__)] -= 1
            over -= 1
        return widths

    def _as_records(self, most: int) -> Iterator[RenderableType]:
        headings = [_text(column.header) for column in self.columns]
        names = max(map(cell_len, headings))
        for number in range(self.row_count):
            grid = Table.grid(padding=(0, 1))
            grid.add_column(style="dim", width=names)
            grid.add_column(overflow="fold", max_width=max(1, most - names - 1))
            for heading, column in zip(headings, self.columns, strict=True):
                cell = [*column.cells][number]
                if _text(cell).strip():
                    grid.add_row(heading, cell)
            yield from ([Text("")] if number else [])
            yield grid


def _text(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def table_of(
    *, texts: Sequence[str], numbers: Sequence[str] = (), notes: Sequence[str] = (), title: str | None = None
) -> FittedTable:
    """An empty table: columns of text, then columns of figures, then columns of text again."""
    table = FittedTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        header_style="dim",
        show_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
    )
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
