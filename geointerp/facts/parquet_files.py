"""Parquet files of facts: anyone's, and our own, which keep the ids."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geointerp.errors import FactsError, one_line, shown
from geointerp.facts.rows import (
    LONG,
    answers_of,
    columns_of,
    facts_of_columns,
    ids_of,
    layout,
    numbered,
)
from geointerp.facts.table import FactTable

if TYPE_CHECKING:
    import pyarrow as pa

METADATA = b"geointerp"  # key in the file's metadata; its value says which ids there are, in which order
VERSION = 1


def read_parquet(path: Path) -> FactTable:
    """The facts of a Parquet file. See `geointerp.facts.read_facts`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = shown(path)
    with path.open("rb") as file:
        try:
            parquet = pq.ParquetFile(file)
            table = parquet.read(use_threads=False)
            table.validate(full=True)
            header = [name.strip() for name in table.column_names]
            _refuse_index(where, table)
            layout(where, header)
            columns = [_strings(where, name, table.column(i)) for i, name in enumerate(header)]
            metadata = parquet.metadata.metadata or {}
            if METADATA in metadata:
                return _facts_with_ids(where, columns, json.loads(metadata[METADATA]))
            if table.num_rows == 0:
                raise FactsError(f"{where} names columns and holds no row; add facts")
            columns = [pa.array(map(str.strip, column.to_pylist()), pa.large_string()) for column in columns]
            return facts_of_columns(where, header, columns, lambda row: f"row {row + 1}")
        except FactsError:
            raise
        except Exception as error:  # damaged files make pyarrow raise errors of many kinds
            raise FactsError(
                f"{where} cannot be read as a table of facts in Parquet ({one_line(error)}); it is damaged or of "
                "another kind, so write it again"
            ) from error


def write_parquet(facts: FactTable, path: Path) -> None:
    """Write the facts as a long table of strings, with the order of all ids in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    order: dict[str, Any] = {"version": VERSION, "digest": facts.digest}
    order |= {kind: count if names is None else names for kind, (_, names, count) in ids_of(facts).items()}
    table = pa.table(dict(zip(LONG, columns_of(facts), strict=True)))
    with path.open("wb") as file, pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA: json.dumps(order)})


def _refuse_index(where: str, table: "pa.Table") -> None:
    for name in (table.schema.pandas_metadata or {}).get("index_columns", []):
        if name in table.column_names:
            raise FactsError(
                f"{where}: column {shown(name)} is an index of pandas, and could be row numbers or the subject; make "
                "it a column or drop it with reset_index() before to_parquet()"
            )


def _strings(where: str, name: str, column: "pa.ChunkedArray") -> "pa.Array":
    """A column as strings, "" for null. Only what has one spelling: 1.0 and dates have several."""
    import pyarrow as pa
    import pyarrow.types as pt

    kind = column.type.value_type if pt.is_dictionary(column.type) else column.type
    is_text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    if not (is_text or pt.is_integer(kind) or pt.is_null(kind)):
        raise FactsError(
            f"{where}: column {shown(name)} holds {kind}; write its values as strings, as they should be spelt"
        )
    return column.cast(kind).cast(pa.large_string()).combine_chunks().fill_null("")


def _facts_with_ids(where: str, columns: "Sequence[pa.Array]", order: dict[str, Any]) -> FactTable:
    """The table that `write_facts` was given; `order` has, by kind, the names of the ids, or else their number."""
    if order["version"] > VERSION:
        raise FactsError(
            f"{where} was written in version {order['version']} of the format, and this geointerp reads version "
            f"{VERSION}; update geointerp"
        )
    altered = (
        f"{where}: its rows are not those that geointerp wrote with the ids in its metadata; write it again, or drop "
        "the metadata key 'geointerp' to have the ids numbered anew"
    )
    ids, names, counts = [], [], []
    for kind, column in zip(("subject", "relation", "attribute"), columns, strict=True):
        known = order[kind]
        codes, strings = numbered(column)
        if isinstance(known, list):
            by_name = {name: i for i, name in enumerate(known)}
            found = [by_name.get(name, -1) for name in strings]
        else:
            found = [int(name[1:]) for name in strings]  # s3, r0, a7
        ids.append(np.array(found, dtype=np.int64)[codes])
        names.append(tuple(known) if isinstance(known, list) else None)
        counts.append(len(known) if isinstance(known, list) else known)
        if len(column) == 0 or ids[-1].min() < 0 or ids[-1].max() >= counts[-1]:
            raise FactsError(altered)
    facts = FactTable(
        answers=answers_of(where, (counts[1], counts[0]), ids[1], ids[0], ids[2], lambda first, second: altered),
        n_attributes=counts[2],
        subject_names=names[0],
        relation_names=names[1],
        attribute_names=names[2],
    )
    if facts.digest != order["digest"]:
        raise FactsError(altered)
    return facts
