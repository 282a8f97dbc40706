"""Tables of facts in files: CSV, TSV and Parquet, read and written."""

import os
import uuid
from contextlib import suppress
from importlib import resources
from pathlib import Path

from geointerp.errors import FactsError, one_line, shown
from geointerp.facts.csv_files import SEPARATORS, read_csv, write_csv
from geointerp.facts.parquet_files import read_parquet, write_parquet
from geointerp.facts.rows import ids_of
from geointerp.facts.table import FactTable

SUFFIXES = (*SEPARATORS, ".parquet")


def read_facts(path: str | os.PathLike[str], *, progress: bool = False) -> FactTable:
    """Read facts from a .csv, .tsv or .parquet file, or a shipped table by its bare name, such as ``"countries"``.

    Long layout: exactly the columns subject, relation and object (or attribute), in any order and case; a row a fact.
    Wide layout, otherwise: the first column names the subject, each further column is the relation in its header; an
    empty cell is an absent fact. A subject, or a relation, without a single fact is left out.

    Values are the strings of the file, with white space around them stripped: "NA" and "004" stay as they are. Lines
    without any value are skipped. A fact may be repeated with the same answer. Ids follow the first appearance in the
    file, row by row; all relations draw on one attribute set, so equal strings are the same attribute. A Parquet file
    of `write_facts` gives back the ids and names that were written.

    Args:
        path: the file, in UTF-8 (a byte-order mark is fine) where it is text.
        progress: show a bar when a text file takes more than a second and the output is a terminal.

    Returns:
        A FactTable with names; answers ``[relation subject]``.

    Raises:
        FactsError: whatever is wrong with the file, in one line, with the line of the file where there is one.
    """
    given = Path(path)
    try:
        if not given.exists() and os.fspath(path) in shipped_tables():
            given = shipped_table(os.fspath(path))
        if not given.is_file():
            raise FactsError(_not_a_file(given))
        suffix = _suffix(given)
        return read_parquet(given) if suffix == ".parquet" else read_csv(given, SEPARATORS[suffix], progress)
    except OSError as error:
        raise FactsError(f"cannot read {shown(given)}: {error.strerror or one_line(error)}") from error


def write_facts(facts: FactTable, path: str | os.PathLike[str]) -> None:
    """Write facts as a long table subject, relation, object; Parquet, CSV or TSV by the suffix of path.

    `read_facts` gives back an equal table from .parquet: ids, n_attributes, names (or None) and digest. From .csv and
    .tsv it gives back the facts under the same names; ids may be numbered anew, and ids without a fact are gone.
    Without names, subject 3, relation 0 and attribute 7 are written s3, r0, a7. The file appears whole or not at all.

    Raises:
        FactsError: another suffix, a path that cannot be written, or names that a reader could not tell apart.
    """
    given = Path(path)
    suffix = _suffix(given)
    for kind, (_, names, _) in ids_of(facts).items():
        _check_names(given, kind, names or (), text=suffix in SEPARATORS)
    temporary = given.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        if suffix == ".parquet":
            write_parquet(facts, temporary)
        else:
            write_csv(facts, temporary, SEPARATORS[suffix])
        os.replace(temporary, given)
    except (OSError, ValueError) as error:  # a ValueError: half a surrogate pair in a name, or a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else None
        raise FactsError(f"cannot write {shown(given)}: {reason or one_line(error)}") from error
    finally:
        with suppress(OSError, ValueError):  # gone where all went well; Ctrl-C too leaves no stray file
            temporary.unlink()


def shipped_table(name: str) -> Path:
    """Path of a table of facts that comes with the package, such as ``"countries"``.

    Raises:
        FactsError: there is none of that name.
    """
    tables = shipped_tables()
    if name not in tables:
        raise FactsError(f"no table called {shown(name)} comes with geointerp; there is {', '.join(tables)}")
    return tables[name]


def shipped_tables() -> dict[str, Path]:
    """Paths of all tables of facts that come with the package, by name."""
    folder = Path(str(resources.files("geointerp.facts"))) / "data"
    return {file.stem: file for file in sorted(folder.glob("*.csv"))}


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise FactsError(
            f"{shown(path)} ends in {shown(suffix) if suffix else 'no suffix'}, and facts are kept in files ending in "
            f"{', '.join(SUFFIXES)}; convert or rename it"
        )
    return suffix


def _not_a_file(path: Path) -> str:
    if path.is_dir():
        return f"{shown(path)} is a folder; give the path of a file in it, ending in {', '.join(SUFFIXES)}"
    if path.exists():
        return f"{shown(path)} is not an ordinary file; copy its content into one, ending in {', '.join(SUFFIXES)}"
    return (
        f"{shown(path)}: there is no such file in {shown(Path.cwd() / path.parent)}; check the path, or name a table "
        f"that comes with geointerp: {', '.join(shipped_tables())}"
    )


def _check_names(path: Path, kind: str, names: tuple[str, ...], text: bool) -> None:
    """Raise FactsError where equal names, or names that a reader strips, would come back as something else."""
    if len(set(names)) < len(names):
        first: dict[str, int] = {}
        twin = next(i for i, name in enumerate(names) if first.setdefault(name, i) != i)
        raise FactsError(
            f"cannot write {shown(path)}: {kind}s {first[names[twin]]} and {twin} are both called "
            f"{shown(names[twin])}, and facts are written by name; give them different names"
        )
    if text and (odd := [i for i, name in enumerate(names) if not name or name != name.strip()]):
        raise FactsError(
            f"cannot write {shown(path)}: {kind} {odd[0]} is called {shown(names[odd[0]])}, and an empty name, or "
            f"white space around one, is lost in {path.suffix}; rename it or write .parquet"
        )
