"""CSV and TSV files of facts.

Python's own csv module parses them: it is fast enough (10^6 facts in about three seconds), and says on which line a
record stands, which pyarrow and pandas do not once a cell holds a line break.
"""

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from geointerp.errors import FactsError, shown
from geointerp.facts.rows import LONG, columns_of, facts_of_columns, layout
from geointerp.facts.table import FactTable

SEPARATORS = {".csv": ",", ".tsv": "\t"}
CHUNK = 1024  # rows parsed at a time; with more of them alive, the garbage collector takes half the time


def read_csv(path: Path, separator: str, progress: bool) -> FactTable:
    """The facts of a text file. See `geointerp.facts.read_facts`."""
    import pyarrow as pa
    from tqdm import tqdm

    where = shown(path)

    def place(row: int) -> str:
        return f"line {next(islice(_lines(path, separator), row + 1, None), '?')}"  # the header comes before row 0

    pieces: list[list[pa.Array]] = []  # [chunk][column]
    with (
        _open(path) as file,
        tqdm(
            total=path.stat().st_size,
            desc=f"reading {path.name}",
            unit="B",
            unit_scale=True,
            delay=1,
            leave=False,
            disable=None if progress else True,
        ) as bar,
    ):
        try:
            records: Iterator[list[str]] = filter(any, _reader(file, separator))  # lines without a value are skipped
            header = [*map(str.strip, next(records, []))]
            if not header:
                raise FactsError(f"{where} is empty; its line 1 should name the columns, and facts follow")
            layout(f"{where}: {place(-1)}", header)
            row = 0
            while chunk := list(islice(records, CHUNK)):
                for i, cells in enumerate(chunk if set(map(len, chunk)) != {len(header)} else ()):
                    if len(cells) != len(header):
                        raise FactsError(
                            f"{where}: {place(row + i)} has {len(cells)} values for {len(header)} columns; give "
                            "one a column, and put double quotes around a value that holds the separator"
                        )
                pieces.append(
                    [pa.array(map(str.strip, cells), pa.large_string()) for cells in zip(*chunk, strict=True)]
                )
                row += len(chunk)
                bar.update(file.buffer.tell() - bar.n)
        except csv.Error:
            for _ in _lines(path, separator):  # comes upon the same error, and names its line
                pass
            raise
        except UnicodeDecodeError as error:
            raise FactsError(f"{where}: {_first_foreign_byte(path)}; save the file as UTF-8") from error
    if not pieces:
        raise FactsError(f"{where}: {place(-1)} names the columns and nothing follows; add a row of facts")
    columns = [pa.concat_arrays(list(column)) for column in zip(*pieces, strict=True)]
    return facts_of_columns(where, header, columns, place)


def write_csv(facts: FactTable, path: Path, separator: str) -> None:
    """Write the facts as a long table, in UTF-8 with the CRLF of RFC 4180."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(LONG)
        writer.writerows(zip(*(column.to_pylist() for column in columns_of(facts)), strict=True))


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8-sig", newline="")


def _reader(file: TextIO, separator: str) -> Any:
    return csv.reader(file, delimiter=separator, strict=True, skipinitialspace=True)


def _lines(path: Path, separator: str) -> Iterator[int]:
    """The line, counted from 1, on which each row with any value begins: a second pass, made for messages alone."""
    with _open(path) as file:
        reader = _reader(file, separator)
        line = 1
        try:
            for row in reader:
                if any(row):
                    yield line
                line = reader.line_num + 1
        except csv.Error as error:
            raise FactsError(
                f"{shown(path)}: line {line} cannot be split into values ({error}); a value that begins with a double "
                "quote ends with one, and one inside it is written twice"
            ) from error


def _first_foreign_byte(path: Path) -> str:
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the text is in UTF-16"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + len(re.findall(rb"\r\n|\r|\n", data[: error.start]))
        return f"line {line} holds the byte 0x{data[error.start]:02x}, which is not UTF-8"
    return "the text is not UTF-8"
