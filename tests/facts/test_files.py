"""Tables in files: what is accepted, what is refused in which words, exact round trips. Cases 17 and 20 of cases.md."""

import csv
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geointerp.errors import FactsError
from geointerp.facts import FactTable, random_bijections, read_facts, shipped_table, write_facts

LONG = "subject,relation,object\n"
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "{{7*7}}",
    "<b>",
    "x" * 300,
    "🌍👩‍👩‍👧",
    'quote " comma , tab \t and\nline\r\nbreak\r.',
    "'=1+1",
    "NA",
    "nan",
    "\u202eright to left",
    "#",
)


def read(tmp_path: Path, content: str | bytes, name: str = "facts.csv") -> FactTable:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_facts(path)


def read_table(tmp_path: Path, table: pa.Table) -> FactTable:
    pq.write_table(table, tmp_path / "facts.parquet")
    return read_facts(tmp_path / "facts.parquet")


def by_name(facts: FactTable) -> dict[tuple[str, str], str]:
    relations, subjects = (ids.tolist() for ids in facts.fact_ids)
    return {
        (facts.subject_name(s), facts.relation_name(r)): facts.attribute_name(int(facts.answers[r, s]))
        for r, s in zip(relations, subjects, strict=True)
    }


def refusal(tmp_path: Path, content: str | bytes, name: str = "facts.csv") -> str:
    with pytest.raises(FactsError) as caught:
        read(tmp_path, content, name)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return message


# What is accepted


def test_long_layout_numbers_by_first_appearance(tmp_path: Path) -> None:
    facts = read(tmp_path, LONG + "y,p,b\nx,q,a\nx,p,b\ny,q,c\n")
    assert (facts.subject_names, facts.relation_names, facts.attribute_names) == (
        ("y", "x"),
        ("p", "q"),
        ("b", "a", "c"),
    )
    assert facts.answers.tolist() == [[0, 0], [2, 1]]
    assert facts.answers.dtype == torch.int64


def test_wide_layout_numbers_row_by_row_and_leaves_holes(tmp_path: Path) -> None:
    facts = read(tmp_path, "country,capital,continent\nPeru,Lima,America\nNauru,,Oceania\nChad,N'Djamena,\n")
    assert facts.subject_names == ("Peru", "Nauru", "Chad")
    assert facts.relation_names == ("capital", "continent")
    assert facts.attribute_names == ("Lima", "America", "Oceania", "N'Djamena")
    assert facts.answers.tolist() == [[0, -1, 3], [1, 2, -1]]


def test_absent_fact_of_a_long_table_is_minus_one(tmp_path: Path) -> None:
    facts = read(tmp_path, LONG + "x,p,a\nx,q,b\ny,p,b\n")
    assert facts.answers.tolist() == [[0, 1], [1, -1]]


@pytest.mark.parametrize(
    "header", ["relation,object,subject", "Relation,ATTRIBUTE,Subject", " relation , attribute , subject "]
)
def test_long_columns_come_in_any_order_and_case(tmp_path: Path, header: str) -> None:
    assert by_name(read(tmp_path, f"{header}\np,a,x\nq,b,x\n")) == {("x", "p"): "a", ("x", "q"): "b"}


def test_two_columns_are_a_wide_table(tmp_path: Path) -> None:
    assert by_name(read(tmp_path, "subject,object\nx,a\n")) == {("x", "object"): "a"}


PLAIN = {("x", "p"): "a", ("y", "p"): "b"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(LONG + "x,p,a\nx,p,a\ny,p,b\n", PLAIN, id="the same fact twice"),
        pytest.param(LONG + "x,p,a\ny,p,b\n\n\n", PLAIN, id="trailing blank lines"),
        pytest.param("\n" + LONG + "\nx,p,a\n   \n,,\ny,p,b", PLAIN, id="blank lines anywhere, none at the end"),
        pytest.param((LONG + "x,p,a\ny,p,b\n").replace("\n", "\r\n"), PLAIN, id="CRLF"),
        pytest.param((LONG + "x,p,a\ny,p,b\n").replace("\n", "\r"), PLAIN, id="CR"),
        pytest.param("\ufeff" + LONG + "x,p,a\ny,p,b\n", PLAIN, id="byte-order mark"),
        pytest.param('\ufeff"subject",relation,object\nx,p,a\ny,p,b\n', PLAIN, id="byte-order mark and quote"),
        pytest.param(LONG + " x ,p,\ta\u00a0\n y,  p , b\n", PLAIN, id="white space around values"),
        pytest.param(LONG + 'x, "p", a\ny,"p",b\n', PLAIN, id="quotes after a space"),
        pytest.param(LONG + '"Korea, South",p,"says ""a"""\n', {("Korea, South", "p"): 'says "a"'}, id="quoted comma"),
        pytest.param(LONG + '"two\nlines",p,a\n', {("two\nlines", "p"): "a"}, id="quoted line break"),
        pytest.param("s,p,q\nx,a,\nx,,b\n", {("x", "p"): "a", ("x", "q"): "b"}, id="a subject on two rows"),
        pytest.param(",p\nx,a\n", {("x", "p"): "a"}, id="no name over the subjects"),
        pytest.param("s,Capital,capital\nx,a,b\n", {("x", "Capital"): "a", ("x", "capital"): "b"}, id="case tells"),
        pytest.param('s,p\nx,5" pipe\n', {("x", "p"): '5" pipe'}, id="quote inside a value"),
    ],
)
def test_accepted(tmp_path: Path, content: str, expected: dict) -> None:
    assert by_name(read(tmp_path, content)) == expected


@pytest.mark.parametrize(
    "value", ["NA", "NaN", "null", "None", "004", "1.0", "1e5", "TRUE", "-", "?", "2020-01-01", "#N/A"]
)
def test_values_stay_as_written(tmp_path: Path, value: str) -> None:
    assert by_name(read(tmp_path, f"s,{value}\nx{value},{value}\n")) == {(f"x{value}", value): value}
    assert by_name(read(tmp_path, f"{LONG}{value},{value},{value}\n")) == {(value, value): value}
    strings = pa.table({"s": [value], value: [value]})
    assert by_name(read_table(tmp_path, strings)) == {(value, value): value}


def test_tabs_separate_tsv(tmp_path: Path) -> None:
    assert by_name(read(tmp_path, "s\tp\nKorea, South\tSeoul\n", "facts.TSV")) == {("Korea, South", "p"): "Seoul"}


def test_equal_strings_are_one_attribute(tmp_path: Path) -> None:
    assert read(tmp_path, "s,p,q\nx,a,b\ny,b,a\n").attribute_sets == "shared"
    assert read(tmp_path, "s,p,q\nx,a,c\ny,b,d\n").attribute_sets == "disjoint"
    assert read(tmp_path, "s,p,q\nx,a,b\ny,b,c\n").attribute_sets == "overlapping"


def test_kinds_of_relation_are_found(tmp_path: Path) -> None:
    facts = read(tmp_path, "s,p,q,r\nx,a,c,a\ny,b,c,\n")
    assert facts.relation_kinds == ("bijection", "many-to-one", "one-to-one")


def test_subjects_and_relations_without_a_fact_are_left_out(tmp_path: Path) -> None:
    facts = read(tmp_path, "s,p,q,r\nx,,,a\ny,,,\nz,b,,\n")
    assert (facts.subject_names, facts.relation_names, facts.attribute_names) == (("x", "z"), ("p", "r"), ("a", "b"))
    assert facts.answers.tolist() == [[-1, 1], [0, -1]]


def test_many_rows_pass_through_several_chunks(tmp_path: Path) -> None:
    rows = [f"s{i},a{7 * i % 5000},b{i % 3}" for i in range(5000)]
    facts = read(tmp_path, "s,p,q\n" + "\n".join(rows))
    assert facts.subject_names == tuple(f"s{i}" for i in range(5000))
    assert facts.n_attributes == 5003
    assert facts.relation_kinds == ("bijection", "many-to-one")
    assert facts.attribute_name(int(facts.answers[0, 4321])) == f"a{7 * 4321 % 5000}"


# What is refused, and in which words


def test_contradiction_names_both_lines_and_both_answers(tmp_path: Path) -> None:
    message = refusal(tmp_path, LONG + "France,capital,Paris\nPeru,capital,Lima\nFrance,capital,Lyon\n")
    assert message == (
        f"'{tmp_path / 'facts.csv'}': line 2 says that 'capital' of 'France' is 'Paris', and line 4 that it is 'Lyon'; "
        "a fact has one answer, so delete one of them"
    )


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    content = (
        '\n"sub\nject",p,q\nx,a,b\n\n"y\r\nz",c,d\n,,\nx,,b\nx,a2,\n'  # lines 2-3, 4, 5 blank, 6-7, 8 blank, 9, 10
    )
    message = refusal(tmp_path, content)
    assert "line 4 says that 'p' of 'x' is 'a', and line 10 that it is 'a2'" in message


def test_contradiction_far_down_in_a_wide_table(tmp_path: Path) -> None:
    rows = "".join(f"s{i},a{i},b\n" for i in range(3000))
    message = refusal(tmp_path, f"s,p,q\n{rows}s5,,b\ns6,,c\n")
    assert "line 8 says that 'q' of 's6' is 'b', and line 3003 that it is 'c'" in message


def test_the_first_of_three_contradicting_lines_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, LONG + "x,p,a\nx,p,a\nx,p,b\nx,p,c\n")
    assert "line 2 says" in message
    assert "line 4 that it is 'b'" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("", ["is empty", "line 1"], id="empty file"),
        pytest.param("\ufeff\n \n", ["is empty"], id="blank lines only"),
        pytest.param(LONG, ["line 1", "nothing follows"], id="header only"),
        pytest.param("s,p\n\n,\n", ["line 1", "nothing follows"], id="header and blank lines"),
        pytest.param("country\nx\n", ["line 1", "only the column 'country'", "at least 2"], id="one column"),
        pytest.param("s;p;q\nx;a;b\n", ["line 1", "only the column 's;p;q'", "commas"], id="semicolons"),
        pytest.param("s,p\nx,a\ny,b,c\n", ["line 3", "3 values for 2 columns"], id="row too long"),
        pytest.param("s,p,q\nx,a,b\n\n\ny,b\n", ["line 5", "2 values for 3 columns"], id="row too short"),
        pytest.param(LONG + "x,p,\n", ["line 2 has no object"], id="no object"),
        pytest.param(LONG + "x,p,a\n,p,a\n", ["line 3 has no subject"], id="no subject"),
        pytest.param(LONG + "x, ,a\n", ["line 2 has no relation"], id="no relation"),
        pytest.param("s,p\nx,a\n,b\n", ["line 3 has no subject"], id="no subject, wide"),
        pytest.param("s,p,q\nx,,\ny,,\n", ["every cell beside the subjects is empty"], id="no fact"),
        pytest.param("s,p,q,p\nx,a,b,c\n", ["line 1", "columns 2 and 4 both 'p'"], id="column twice"),
        pytest.param("s,p,,q\nx,a,b,c\n", ["line 1", "column 3 no name"], id="column without a name"),
        pytest.param(
            ",subject,relation,object\n0,x,p,a\n", ["subject, relation and object", "besides ''"], id="long and more"
        ),
        pytest.param(
            "subject,relation,object,attribute\nx,p,a,b\n",
            ["subject, relation and object", "besides 'attribute'"],
            id="object and attribute",
        ),
        pytest.param('s,p\nx,"a\ny,b\n', ["line 2", "quote"], id="quote left open"),
        pytest.param('s,p\nx,a\ny,"b"c\n', ["line 3", "quote"], id="text after a quote"),
        pytest.param('"s,p\n', ["line 1", "quote"], id="quote left open in the header"),
        pytest.param("s,p\nx," + "a" * 200_000 + "\n", ["line 2", "131072"], id="a giant value"),
        pytest.param(b"s,p\nx,a\r\ny,caf\xe9\n", ["line 3", "0xe9", "UTF-8"], id="Latin-1"),
        pytest.param("s,p\nx,a\n".encode("utf-16"), ["UTF-16", "save the file as UTF-8"], id="UTF-16"),
        pytest.param(b"s,p\n" + b"x,a\n" * 9000 + b"y,\xff", ["line 9002", "0xff"], id="not UTF-8, far down"),
    ],
)
def test_refused(tmp_path: Path, content: str | bytes, words: list[str]) -> None:
    message = refusal(tmp_path, content)
    assert all(word in message for word in words), message


def test_long_and_hostile_names_are_shortened_and_quoted(tmp_path: Path) -> None:
    message = refusal(tmp_path, LONG + f'"a\n\x1b[31m",p,{"x" * 5000}\n"a\n\x1b[31m",p,b\n')
    assert len(message) < 800
    assert r"'a\n\x1b[31m'" in message


def test_a_huge_table_that_is_all_but_empty_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"x{i},p{i},a\n" for i in range(12_000))  # 12 000 facts in 144 000 000 cells
    message = refusal(tmp_path, LONG + rows)
    assert "12000 facts about 12000 subjects and 12000 relations" in message
    assert "1.1 GiB" in message


@pytest.mark.parametrize("name", ["facts", "facts.txt", "facts.csv.gz", "facts.xlsx", ".csv"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    assert ".csv, .tsv, .parquet" in refusal(tmp_path, "s,p\nx,a\n", name)
    with pytest.raises(FactsError, match=r"\.csv, \.tsv, \.parquet"):
        write_facts(random_bijections(3, 1, 0), tmp_path / name)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match=r"no such file in .*countries"):
        read_facts(tmp_path / "nowhere" / "facts.csv")
    for name in ["folder.csv", "folder.parquet"]:
        (tmp_path / name).mkdir()
        with pytest.raises(FactsError, match="is a folder"):
            read_facts(tmp_path / name)
        with pytest.raises(FactsError, match=r"cannot write .*folder"):
            write_facts(random_bijections(3, 1, 0), tmp_path / name)
    with pytest.raises(FactsError, match="not an ordinary file"):
        read_facts(os.devnull)
    for name in ["x\0.csv", "x" * 300 + ".csv", "x\0.parquet", "x" * 300 + ".parquet"]:
        with pytest.raises(FactsError, match=r"^[^\n]*$"):
            read_facts(tmp_path / name)
        with pytest.raises(FactsError, match=r"^[^\n]*$"):
            write_facts(random_bijections(3, 1, 0), tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "facts.csv").write_text("s,p\nx,a\n")
    (tmp_path / "facts.csv").chmod(0)
    with pytest.raises(FactsError, match="Permission denied"):
        read_facts(tmp_path / "facts.csv")


# Parquet of others


def test_parquet_wide_and_long(tmp_path: Path) -> None:
    wide = pa.table({"s": ["x", "y"], "p": [" a ", None], "q": ["", "b"]})
    assert by_name(read_table(tmp_path, wide)) == {("x", "p"): "a", ("y", "q"): "b"}
    long = pa.table({"Object": ["a"], "Subject": ["x"], "Relation": ["p"]})
    assert by_name(read_table(tmp_path, long)) == {("x", "p"): "a"}


def test_parquet_integers_and_dictionaries_are_their_strings(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array(["x", "y", "x"]).dictionary_encode(), "p": pa.array([4, 5, 4], pa.int16())})
    assert by_name(read_table(tmp_path, table)) == {("x", "p"): "4", ("y", "p"): "5"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param(pa.table({"s": ["x"], "p": [1.0]}), ["'p' holds double", "strings"], id="floats"),
        pytest.param(pa.table({"s": ["x"], "p": [b"a"]}), ["'p' holds binary", "strings"], id="bytes"),
        pytest.param(pa.table({"s": ["x"], "p": [["a"]]}), ["'p' holds list", "strings"], id="lists"),
        pytest.param(pa.table({"s": ["x"]}), ["only the column 's'"], id="one column"),
        pytest.param(pa.table({}), ["no column"], id="no column"),
        pytest.param(
            pa.table({"s": pa.array([], pa.string()), "p": pa.array([], pa.string())}), ["no row"], id="no row"
        ),
        pytest.param(pa.table({"s": ["x"], "p": pa.nulls(1)}), ["every cell"], id="no fact"),
        pytest.param(pa.table([["x"], ["a"], ["b"]], ["s", "p", "p"]), ["2 and 3 both 'p'"], id="column twice"),
        pytest.param(pa.table({"s": ["x", None], "p": ["a", "b"]}), ["row 2 has no subject"], id="no subject"),
        pytest.param(pa.table({"s": ["x", "x"], "p": ["a", "b"]}), ["row 1 says", "row 2 that"], id="contradiction"),
    ],
)
def test_parquet_refused(tmp_path: Path, table: pa.Table, words: list[str]) -> None:
    with pytest.raises(FactsError) as caught:
        read_table(tmp_path, table)
    assert all(word in str(caught.value) for word in [*words, "facts.parquet"]), caught.value


def test_an_index_of_pandas_is_not_taken_for_a_relation(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"country": ["Peru", "Chad", "Cuba"], "capital": ["Lima", "N'Djamena", "Havana"]})
    frame.to_parquet(tmp_path / "plain.parquet")
    assert by_name(read_facts(tmp_path / "plain.parquet"))["Chad", "capital"] == "N'Djamena"
    for name, other in {
        "set.parquet": frame.set_index("country"),
        "cut.parquet": frame.sort_values("country"),
    }.items():
        other.to_parquet(tmp_path / name)
        with pytest.raises(FactsError, match=r"index of pandas.*reset_index"):
            read_facts(tmp_path / name)


def test_damaged_parquet_is_refused_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "facts.parquet"
    write_facts(random_bijections(20, 2, 0), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(FactsError, match=r"^[^\n]*facts\.parquet[^\n]*$"):
            read_facts(path)


# Round trips


def assert_equal(back: FactTable, facts: FactTable) -> None:
    assert back.answers.equal(facts.answers)
    for field in ("n_attributes", "subject_names", "relation_names", "attribute_names", "digest"):
        assert getattr(back, field) == getattr(facts, field), field


@pytest.mark.parametrize("disjoint", [False, True])
def test_unnamed_worlds_come_back_from_parquet(tmp_path: Path, disjoint: bool) -> None:
    facts = random_bijections(100, 3, 0, disjoint=disjoint)
    write_facts(facts, tmp_path / "facts.parquet")
    assert_equal(read_facts(tmp_path / "facts.parquet"), facts)


def test_parquet_keeps_order_and_unused_ids(tmp_path: Path) -> None:
    facts = FactTable(
        answers=torch.tensor([[-1, 4, -1], [-1, -1, -1], [-1, 2, 2]]),
        n_attributes=6,
        subject_names=("unused", "b", "a"),
        relation_names=(" q ", "unused", ""),
        attribute_names=tuple("fedcba"),
    )
    write_facts(facts, tmp_path / "facts.parquet")
    assert_equal(read_facts(tmp_path / "facts.parquet"), facts)
    rows = pq.read_table(tmp_path / "facts.parquet")
    assert rows.column_names == ["subject", "relation", "object"]
    assert rows.to_pylist() == [
        {"subject": "b", "relation": " q ", "object": "b"},
        {"subject": "b", "relation": "", "object": "d"},
        {"subject": "a", "relation": "", "object": "d"},
    ]


def test_some_names_and_others_not(tmp_path: Path) -> None:
    facts = FactTable(answers=torch.tensor([[1, 0, 12]]), n_attributes=13, subject_names=("s2", "s1", "s0"))
    write_facts(facts, tmp_path / "facts.parquet")
    assert_equal(read_facts(tmp_path / "facts.parquet"), facts)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_hostile_names_come_back_literally(tmp_path: Path, suffix: str) -> None:
    facts = FactTable(
        answers=torch.arange(22).reshape(2, 11).flip(1),
        n_attributes=22,
        subject_names=HOSTILE,
        relation_names=HOSTILE[:2],
        attribute_names=(*HOSTILE, *(f"{name}!" for name in HOSTILE)),
    )
    path = tmp_path / f"facts{suffix}"
    write_facts(facts, path)
    assert by_name(read_facts(path)) == by_name(facts)
    if suffix == ".parquet":
        assert_equal(read_facts(path), facts)


def test_text_of_an_unnamed_world(tmp_path: Path) -> None:
    write_facts(FactTable(answers=torch.tensor([[1, -1], [0, 2]]), n_attributes=4), tmp_path / "facts.csv")
    assert (tmp_path / "facts.csv").read_bytes() == b"subject,relation,object\r\ns0,r0,a1\r\ns0,r1,a0\r\ns1,r1,a2\r\n"


def test_names_that_would_not_come_back_are_refused(tmp_path: Path) -> None:
    twins = FactTable(answers=torch.tensor([[0, 1, 2]]), n_attributes=3, subject_names=("x", "y", "x"))
    spaced = FactTable(answers=torch.tensor([[0, 1]]), n_attributes=2, attribute_names=("a", " b"))
    surrogate = FactTable(answers=torch.tensor([[0, 1]]), n_attributes=2, subject_names=("x", "\ud800"))
    for suffix in (".csv", ".parquet"):
        with pytest.raises(FactsError, match="subjects 0 and 2 are both called 'x'"):
            write_facts(twins, tmp_path / f"twins{suffix}")
        with pytest.raises(FactsError, match=r"cannot write .*surrogates"):
            write_facts(surrogate, tmp_path / f"surrogate{suffix}")
    with pytest.raises(FactsError, match="attribute 1 is called ' b'"):
        write_facts(spaced, tmp_path / "spaced.csv")
    assert list(tmp_path.iterdir()) == []


def test_altered_rows_are_not_taken_for_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "facts.parquet"
    write_facts(random_bijections(5, 1, 0), path)
    table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
    rows = table.to_pylist()
    for change in ({"object": rows[1]["object"]}, {"subject": "s5"}, {"object": "other"}, {"subject": "s-1"}):
        changed = pa.Table.from_pylist([rows[0] | change, *rows[1:]])
        pq.write_table(changed.replace_schema_metadata(metadata), path)
        with pytest.raises(FactsError, match=r"facts\.parquet"):
            read_facts(path)
    pq.write_table(table.replace_schema_metadata({"geointerp": '{"version": 2}'}), path)
    with pytest.raises(FactsError, match=r"version 2 of the format.*version 1; update"):
        read_facts(path)
    for nonsense in ("", "[]", "{}", '{"version": 1, "subject": 3}', "[" * 10_000):
        pq.write_table(table.replace_schema_metadata({"geointerp": nonsense}), path)
        with pytest.raises(FactsError, match=r"cannot be read as a table of facts|its rows are not those"):
            read_facts(path)


def test_writing_replaces_whole_and_leaves_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "facts.parquet"
    first, second = random_bijections(5, 1, 0), random_bijections(5, 1, 1)
    write_facts(first, path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_facts(second, path)
    monkeypatch.undo()
    assert_equal(read_facts(path), first)
    write_facts(second, path)
    assert_equal(read_facts(path), second)
    assert list(tmp_path.iterdir()) == [path]


def test_equal_facts_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("one.parquet", "two.parquet", "one.csv", "two.csv"):
        write_facts(random_bijections(50, 2, 0), tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


# The table that comes with the package


def test_countries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    facts = read_facts("countries")
    known = by_name(facts)
    assert (facts.n_subjects, facts.n_relations, facts.n_facts, facts.n_attributes) == (250, 8, 1988, 1485)
    assert {relation: known["Namibia", relation] for relation in facts.relation_names or ()} == {
        "alpha_2": "NA",
        "alpha_3": "NAM",
        "numeric": "516",
        "capital": "Windhoek",
        "top_level_domain": ".na",
        "currency": "NAD",
        "continent": "Africa",
        "main_language": "en",
    }
    assert known["Afghanistan", "numeric"] == "004"
    assert ("Antarctica", "capital") not in known
    assert ("Kosovo", "numeric") not in known
    assert facts.relation_kinds == ("bijection", "bijection", "one-to-one", *["many-to-one"] * 5)
    assert facts.attribute_sets == "overlapping"
    assert read_facts(shipped_table("countries")).digest == facts.digest


def test_countries_agree_with_the_csv_module() -> None:
    with shipped_table("countries").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = {(row["country"], column): row[column] for row in rows for column in list(row)[1:] if row[column]}
    assert by_name(read_facts("countries")) == expected


def test_a_file_of_ones_own_goes_before_a_shipped_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "countries").mkdir()
    with pytest.raises(FactsError, match="'countries' is a folder"):
        read_facts("countries")
    for name in ("planets", "../data/countries"):
        with pytest.raises(FactsError, match="there is countries"):
            shipped_table(name)


def test_importing_facts_leaves_the_readers_unloaded() -> None:
    code = "import sys, geointerp.facts.files; print({'pyarrow', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Anything at all


FUZZ = settings(
    deadline=None,
    max_examples=150,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def facts_or_refusal(tmp_path: Path, content: bytes, suffix: str) -> None:
    try:
        facts = read(tmp_path, content, f"fuzz{suffix}")
    except FactsError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert facts.n_facts > 0


@FUZZ
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".csv", ".tsv", ".parquet"]))
def test_random_bytes(tmp_path: Path, content: bytes, suffix: str) -> None:
    facts_or_refusal(tmp_path, content, suffix)
    if suffix == ".parquet":
        facts_or_refusal(tmp_path, b"PAR1" + content + len(content).to_bytes(4, "little") + b"PAR1", suffix)


@FUZZ
@given(content=st.text(), suffix=st.sampled_from([".csv", ".tsv"]))
def test_random_text(tmp_path: Path, content: str, suffix: str) -> None:
    facts_or_refusal(tmp_path, content.encode("utf-8", "surrogatepass"), suffix)


@FUZZ
@given(
    header=st.sampled_from([LONG, "s,p,q\n", "s,p\n"]),
    body=st.text(alphabet=st.sampled_from('ab,,\n\r\n"" \t'), max_size=60),
)
def test_random_tables(tmp_path: Path, header: str, body: str) -> None:
    facts_or_refusal(tmp_path, (header + body).encode(), ".csv")


NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.strip).filter(bool)


@FUZZ
@given(
    facts=st.dictionaries(st.tuples(NAME, NAME), NAME, min_size=1, max_size=12),
    suffix=st.sampled_from([".csv", ".tsv", ".parquet"]),
)
def test_any_named_facts_come_back(tmp_path: Path, facts: dict[tuple[str, str], str], suffix: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["subject", "relation", "object"])
    writer.writerows([*pair, answer] for pair, answer in facts.items())
    first = read(tmp_path, text.getvalue())
    assert by_name(first) == facts
    path = tmp_path / f"again{suffix}"
    write_facts(first, path)
    assert by_name(read_facts(path)) == facts
    if suffix == ".parquet":
        assert_equal(read_facts(path), first)


@pytest.mark.slow
def test_a_million_rows_in_seconds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write(LONG)
        file.writelines(f"person {i // 4},relation {i % 4},city {i * 7919 % 250_000}\n" for i in range(1_000_000))
    start = time.process_time()
    facts = read_facts(path, progress=True)
    seconds = time.process_time() - start
    assert (facts.n_facts, facts.n_subjects, facts.n_relations, facts.n_attributes) == (1_000_000, 250_000, 4, 250_000)
    # 7919 is odd and 250 000 even, so subject s and relation r answer city (4 s + r) 7919 mod 250 000.
    assert facts.attribute_name(int(facts.answers[3, 123_456])) == f"city {(4 * 123_456 + 3) * 7919 % 250_000}"
    assert seconds < 15  # 2.5 on a quiet core
    assert capfd.readouterr().err == ""  # no bar where the output is no terminal
    write_facts(facts, tmp_path / "large.parquet")
    assert_equal(read_facts(tmp_path / "large.parquet"), facts)
    with path.open("a") as file:
        file.write("person 7,relation 2,nowhere\n")
    with pytest.raises(FactsError, match=r"line 32 says .*, and line 1000002 that it is 'nowhere'"):
        read_facts(path)
