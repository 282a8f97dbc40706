"""transfer: exact for a perfect selector, chance for a lookup table and for shuffled maps."""

import pytest
import torch
from planted import lookup_table, normal, perfect_selector

from geointerp import FactTable, decompose, random_bijections, transfer
from geointerp.errors import MeasureError


def test_a_perfect_selector_transfers_exactly() -> None:
    facts = random_bijections(256, 3, seed=0)
    result = transfer(perfect_selector(facts), worlds=4)
    assert result.recalls == (1.0,) * 4
    assert (result.recall, result.sd, result.trained) == (1.0, 0.0, 1.0)
    assert result.chance == pytest.approx(1 / 256)
    assert result.shuffled is not None
    # a shifted map makes relation r answer g_(r-1): right where two bijections agree, 1/N of the facts
    assert result.shuffled < 5 / 256


def test_a_lookup_table_does_not_transfer() -> None:
    facts = random_bijections(256, 2, seed=1)
    result = transfer(lookup_table(facts, 32))
    assert result.recall < 0.05
    assert not result.saturated


def test_new_worlds_are_new_and_of_the_same_kind() -> None:
    answers = torch.tensor([[0, 0, 1, 1, -1, 2, 2, 2], [3, 4, 5, 6, 7, 8, 9, -1]])
    facts = FactTable(answers=answers, n_attributes=10)
    result = transfer(perfect_selector(facts), worlds=3, seed=2)
    assert result.worlds == 3
    # three attributes for seven facts, seven for seven
    assert result.chance_in_relation == pytest.approx((7 / 3 + 7 / 7) / 14)
    assert result.chance == pytest.approx(0.1)


def test_a_single_relation_has_no_shuffled_control() -> None:
    assert transfer(perfect_selector(random_bijections(64, 1, seed=3)), worlds=1).shuffled is None


def test_bad_input_is_refused_with_a_reason() -> None:
    facts = random_bijections(20, 2, seed=4)
    with pytest.raises(MeasureError, match="transfer runs the network"):
        transfer((normal(20, 4), normal(20, 4)), facts)
    fit = decompose(perfect_selector(random_bijections(20, 3, seed=5)), permutations=1)
    with pytest.raises(MeasureError, match="maps of 3 relations"):
        transfer(perfect_selector(facts), superposition=fit)
