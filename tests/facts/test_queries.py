"""Token layout, and ids that no token stands for (cases.md 12)."""

import pytest
import torch

from geointerp.errors import FactsError
from geointerp.facts.queries import check_ids, queries, relation_token


def test_a_query_is_subject_then_relation_after_all_subjects() -> None:
    tokens = queries(torch.tensor([9, 0, 4]), torch.tensor([0, 2, 1]), n_subjects=10, n_relations=3)
    assert tokens.tolist() == [[9, 10], [0, 12], [4, 11]]
    assert tokens.dtype == torch.int64


def test_no_query_is_no_row() -> None:
    none = torch.empty(0, dtype=torch.int64)
    assert queries(none, none, n_subjects=10, n_relations=3).shape == (0, 2)


def test_relations_follow_the_subjects() -> None:
    assert relation_token(torch.tensor([[0, 1], [2, 3]]), 10).tolist() == [[10, 11], [12, 13]]


@pytest.mark.parametrize(
    ("relations", "subjects", "words"),
    [
        ([0, 3], [0, 0], ["relation id 3", "row 1", "0..2"]),
        ([-1, 0], [0, 0], ["relation id -1", "row 0", "0..2"]),
        ([0, 0, 0], [0, 1, 10], ["subject id 10", "row 2", "0..9"]),
        ([0], [-1], ["subject id -1", "row 0", "0..9"]),
    ],
)
def test_ids_out_of_range_are_named(relations: list[int], subjects: list[int], words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[0]) as caught:
        queries(torch.tensor(subjects), torch.tensor(relations), n_subjects=10, n_relations=3)
    assert all(word in str(caught.value) for word in words), caught.value


def test_check_ids_names_the_place_in_a_matrix() -> None:
    with pytest.raises(FactsError, match=r"attribute id 7 in row 1, position 0 is outside 0\.\.6"):
        check_ids("attribute", torch.tensor([[0, 6], [7, 8]]), 7)
    check_ids("attribute", torch.tensor([[0, 6], [5, 0]]), 7)
    check_ids("attribute", torch.empty(0, dtype=torch.int64), 0)
