"""From columns of strings to a FactTable, and back: what all kinds of file have in common."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from geointerp.errors import FactsError, shown
from geointerp.facts.table import ABSENT, FactTable

if TYPE_CHECKING:  # imported where it is used: half a second that `geointerp --help` must not wait for
    import pyarrow as pa

LONG = ("subject", "relation", "object")
SPARSE_CELLS, SPARSE_FILL = 2**27, 0.01  # a larger table (1 GiB), emptier than this, is a mistake about the columns


def layout(where: str, header: Sequence[str]) -> tuple[int, int, int] | None:
    """Columns of subject, relation and object in the long layout; None for the wide one.

    Raises:
        FactsError: fewer than two columns, a column twice or without a name, or the long columns among others.
    """
    if len(header) < 2:
        named = f"only the column {shown(header[0])}" if header else "no column"
        raise FactsError(
            f"{where} names {named}, and a table has at least 2; give a subject and its relations, separated by commas "
            "in .csv and by tabs in .tsv"
        )
    for i, name in enumerate(header):
        if name in header[:i]:
            first = header.index(name) + 1
            raise FactsError(f"{where} names columns {first} and {i + 1} both {shown(name)}; rename or drop one")
        if i and not name:
            raise FactsError(
                f"{where} gives column {i + 1} no name, and it names the relation; name or drop the column"
            )
    plain = ["object" if name.casefold() == "attribute" else name.casefold() for name in header]
    if sorted(plain) == sorted(LONG):
        return plain.index("subject"), plain.index("relation"), plain.index("object")
    if set(LONG) <= set(plain):
        others = ", ".join(shown(header[i]) for i, word in enumerate(plain) if word not in LONG or word in plain[:i])
        raise FactsError(
            f"{where} has the columns subject, relation and object (or attribute), and besides {others}; drop what "
            "is besides, or rename those three where they are relations of a wide table"
        )
    return None


def facts_of_columns(
    where: str, header: list[str], columns: "Sequence[pa.Array]", place: Callable[[int], str]
) -> FactTable:
    """The facts in columns of stripped strings, "" where a cell is empty.

    Args:
        where: the file, for messages.
        header: name of each column.
        columns: large_string arrays of equal length.
        place: says where in the file a row stands, such as "line 7".

    Raises:
        FactsError: a value is missing, a fact has two answers, or there is no fact.
    """
    import pyarrow as pa

    rows, relations = np.arange(len(columns[0])), len(header) - 1
    long = layout(where, header)
    if long:
        subjects, named_relations, objects = (columns[i] for i in long)
        for kind, column in zip(LONG, (subjects, named_relations, objects), strict=True):
            if empty := np.flatnonzero(_is_empty(column)).tolist():
                raise FactsError(f"{where}: {place(empty[0])} has no {kind}; fill it in, or delete the row")
        relation, relation_names = numbered(named_relations)
    else:
        by_row = np.arange(len(rows) * relations).reshape(relations, -1).T.ravel()  # row by row, left to right
        cells = pa.concat_arrays(list(columns[1:])).take(pa.array(by_row))
        filled = np.flatnonzero(~_is_empty(cells))
        if not filled.size:
            raise FactsError(f"{where}: every cell beside the subjects is empty; a table has at least one fact")
        objects = cells.take(pa.array(filled))
        rows, column = filled // relations, filled % relations
        subjects = columns[0].take(pa.array(rows))
        if empty := rows[_is_empty(subjects)].tolist():
            raise FactsError(
                f"{where}: {place(empty[0])} has no subject in its first cell; fill it in, or empty the row"
            )
        used = np.flatnonzero(np.bincount(column, minlength=relations))
        relation = np.searchsorted(used, column)
        relation_names = tuple(header[1 + i] for i in used.tolist())
    subject, subject_names = numbered(subjects)
    attribute, attribute_names = numbered(objects)

    def two_answers(first: int, second: int) -> str:
        return (
            f"{where}: {place(int(rows[first]))} says that {shown(relation_names[relation[first]])} of "
            f"{shown(subject_names[subject[first]])} is {shown(attribute_names[attribute[first]])}, and "
            f"{place(int(rows[second]))} that it is {shown(attribute_names[attribute[second]])}; a fact has one "
            "answer, so delete one of them"
        )

    shape = (len(relation_names), len(subject_names))
    return FactTable(
        answers=answers_of(where, shape, relation, subject, attribute, two_answers),
        n_attributes=len(attribute_names),
        subject_names=subject_names,
        relation_names=relation_names,
        attribute_names=attribute_names,
    )


def answers_of(
    where: str,
    shape: tuple[int, int],
    relation: Int[np.ndarray, " fact"],
    subject: Int[np.ndarray, " fact"],
    attribute: Int[np.ndarray, " fact"],
    two_answers: Callable[[int, int], str],
) -> Int[Tensor, "relation subject"]:
    """Answers ``[relation subject]`` of facts given one by one, -1 elsewhere.

    Raises:
        FactsError: `two_answers` of the first contradiction; or the table would be huge and all but empty.
    """
    cells = shape[0] * shape[1]
    if cells > SPARSE_CELLS and len(relation) < SPARSE_FILL * cells:
        raise FactsError(
            f"{where}: {len(relation)} facts about {shape[1]} subjects and {shape[0]} relations fill less than "
            f"{SPARSE_FILL:.0%} of a table of {cells * 8 / 2**30:.1f} GiB; check that each column is what its name says"
        )
    cell = relation * shape[1] + subject
    answers = np.full(cells, ABSENT, dtype=np.int64)
    answers[cell[::-1]] = attribute[::-1]  # the last write stays, which is the first fact of the file
    wrong = np.flatnonzero(answers[cell] != attribute)
    if wrong.size:
        first = np.flatnonzero(cell == cell[wrong[0]])[0]
        raise FactsError(two_answers(int(first), int(wrong[0])))
    return torch.from_numpy(answers.reshape(shape))


def ids_of(facts: FactTable) -> dict[str, tuple[Int[Tensor, " fact"], tuple[str, ...] | None, int]]:
    """For subject, relation and attribute: the id in every fact, the names by id, and the number of ids."""
    relation, subject = facts.fact_ids
    return {
        "subject": (subject, facts.subject_names, facts.n_subjects),
        "relation": (relation, facts.relation_names, facts.n_relations),
        "attribute": (facts.answers[relation, subject], facts.attribute_names, facts.n_attributes),
    }


def columns_of(facts: FactTable) -> "list[pa.Array]":
    """Subject, relation and object of every fact as strings; s3, r0, a7 where there are no names."""
    import pyarrow as pa

    columns = []
    for kind, (ids, names, count) in ids_of(facts).items():
        strings = names if names is not None else [f"{kind[0]}{i}" for i in range(count)]
        columns.append(pa.array(strings, pa.string()).take(pa.array(ids.numpy())))
    return columns


def _is_empty(column: "pa.Array") -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.call_function("equal", [column, pa.scalar("", column.type)]).to_numpy(zero_copy_only=False)


def numbered(column: "pa.Array") -> tuple[Int[np.ndarray, " fact"], tuple[str, ...]]:
    """Ids by order of first appearance, and the string of each id."""
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), tuple(encoded.dictionary.to_pylist())
