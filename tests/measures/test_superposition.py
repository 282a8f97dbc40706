"""decompose: planted maps come back, random rows fail, leave-one-out is what refitting gives."""

import dataclasses

import numpy as np
import pytest
import torch
from planted import exact_superposition, lookup_table, normal, perfect_selector
from torch import Tensor

from geointerp import FactTable, FactTransformer, FactTransformerConfig, decompose, random_bijections
from geointerp.errors import ConfigError, MeasureError
from geointerp.measures.superposition import answer_vectors


def partial_table(n_subjects: int, n_relations: int, n_attributes: int, seed: int = 0) -> FactTable:
    rng = torch.Generator().manual_seed(seed)
    answers = torch.randint(-1, n_attributes, (n_relations, n_subjects), generator=rng)
    answers[0, 0] = 0
    return FactTable(answers=answers, n_attributes=n_attributes)


def refitted_r2(rows: Tensor, attributes: Tensor, facts: FactTable, rcond: float = 1e-9) -> tuple[float, float]:
    """(in-sample, leave-one-out) R2 by numpy, refitting the minimum-norm solution without each subject."""
    used = facts.present.any(0)
    design = answer_vectors(facts, attributes)[:, used].permute(1, 0, 2).flatten(1).numpy()
    target = rows.double()[used].numpy()

    def predict(train: np.ndarray, x: np.ndarray) -> np.ndarray:
        mean_x, mean_y = design[train].mean(0), target[train].mean(0)
        slope = np.linalg.pinv(design[train] - mean_x, rcond=rcond) @ (target[train] - mean_y)
        return mean_y + (x - mean_x) @ slope

    everyone = np.arange(len(target))
    total = ((target - target.mean(0)) ** 2).sum()
    inside = target - predict(everyone, design)
    outside = np.stack([target[i] - predict(np.delete(everyone, i), design[i]) for i in everyone])
    return 1 - (inside**2).sum() / total, 1 - (outside**2).sum() / total


def test_exact_superposition_gives_back_the_planted_maps() -> None:
    facts = random_bijections(200, 3, seed=0)
    rows, attributes, maps, intercept = exact_superposition(facts, 8)
    fit = decompose((rows, attributes), facts, permutations=20)
    assert fit.r2_in_sample == pytest.approx(1, abs=1e-12)
    assert fit.r2_leave_one_out == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(fit.maps, maps, atol=1e-9, rtol=0)
    torch.testing.assert_close(fit.rows(facts, attributes), rows, atol=1e-9, rtol=0)
    torch.testing.assert_close(fit.components(facts, attributes).sum(0) + fit.intercept, rows, atol=1e-9, rtol=0)
    assert (fit.rank, fit.n_features, fit.identifiable) == (24, 24, (True,) * 3)
    assert fit.null_leave_one_out.p == pytest.approx(1 / 21)
    # the intercept itself is determined only together with the mean attribute vector: c + sum_r A_r mean(u)
    total = fit.intercept + sum(fit.maps[r] @ attributes.mean(0) for r in range(3))
    torch.testing.assert_close(total, intercept + sum(maps[r] @ attributes.mean(0) for r in range(3)))


def test_random_rows_fail_where_they_can() -> None:
    facts = random_bijections(400, 2, seed=1)
    rows, attributes = normal(400, 10, seed=2), normal(400, 10, seed=3)
    fit = decompose((rows, attributes), facts, permutations=50)
    assert fit.r2_leave_one_out <= 0
    assert fit.r2_in_sample == pytest.approx(20 / 399, abs=0.02)  # about R d / (N - 1)
    assert fit.null_in_sample.mean == pytest.approx(20 / 399, abs=0.005)
    assert fit.null_leave_one_out.p > 0.05
    assert not fit.saturated
    assert fit.warning is None


@pytest.mark.parametrize(
    ("n_subjects", "n_relations", "d", "rank_of_vectors"),
    [(40, 3, 5, 5), (30, 3, 6, 4), (12, 4, 5, 5), (16, 3, 5, 5), (17, 3, 5, 5)],
    ids=["full rank", "deficient", "saturated", "N = R d + 1", "N = R d + 2"],
)
def test_leave_one_out_equals_refitting(n_subjects: int, n_relations: int, d: int, rank_of_vectors: int) -> None:
    facts = random_bijections(n_subjects, n_relations, seed=4)
    attributes = (normal(n_subjects, rank_of_vectors, seed=5) @ normal(rank_of_vectors, d, seed=6)).double()
    rows = normal(n_subjects, 7, seed=7).double()
    fit = decompose((rows, attributes), facts, permutations=1)
    inside, outside = refitted_r2(rows, attributes, facts)
    assert fit.r2_in_sample == pytest.approx(inside, abs=1e-9)
    assert fit.r2_leave_one_out == pytest.approx(outside, rel=1e-6)


def test_leave_one_out_equals_refitting_where_one_subject_alone_has_a_relation() -> None:
    facts = partial_table(40, 2, 30)
    answers = torch.cat([facts.answers, torch.full((1, 40), -1)])
    answers[2, 5] = 3  # relation 2 is known of subject 5 alone: its leverage is 1
    facts = FactTable(answers=answers, n_attributes=30)
    attributes, rows = normal(30, 4, seed=8).double(), normal(40, 6, seed=9).double()
    fit = decompose((rows, attributes), facts, permutations=1)
    inside, outside = refitted_r2(rows, attributes, facts)
    assert fit.r2_in_sample == pytest.approx(inside, abs=1e-9)
    assert fit.r2_leave_one_out == pytest.approx(outside, rel=1e-6)


def test_scalar_maps_give_back_planted_numbers_and_leave_one_out_equals_refitting() -> None:
    facts = random_bijections(30, 3, seed=10)
    attributes = normal(30, 4, seed=11).double()
    parts = answer_vectors(facts, attributes)
    exact = 1.5 * parts[0] - 0.5 * parts[1] + 0.25 * parts[2] + 3.0
    fit = decompose((exact, attributes), facts, maps="scalar", permutations=1)
    planted = torch.tensor([1.5, -0.5, 0.25])[:, None, None] * torch.eye(4)
    torch.testing.assert_close(fit.maps, planted.double(), atol=1e-9, rtol=0)
    assert fit.r2_leave_one_out == pytest.approx(1, abs=1e-12)

    rows = exact + normal(30, 4, seed=12)
    fit = decompose((rows, attributes), facts, maps="scalar", permutations=1)
    residuals = []
    for left_out in range(30):
        kept = torch.arange(30) != left_out
        mean_x, mean_y = parts[:, kept].mean(1), rows[kept].mean(0)
        x = (parts[:, kept] - mean_x[:, None]).flatten(1).T.numpy()
        alpha = np.linalg.lstsq(x, (rows[kept] - mean_y).flatten().numpy(), rcond=None)[0]
        guess = mean_y + torch.einsum("r,rd->d", torch.from_numpy(alpha), parts[:, left_out] - mean_x)
        residuals.append(rows[left_out] - guess)
    total = (rows - rows.mean(0)).pow(2).sum()
    assert fit.r2_leave_one_out == pytest.approx(1 - float(torch.stack(residuals).pow(2).sum() / total), rel=1e-9)


def test_permutation_null_equals_refitting_on_permuted_answers() -> None:
    facts = random_bijections(60, 2, seed=13)
    rows, attributes = normal(60, 5, seed=14).double(), normal(60, 5, seed=15).double()
    fit = decompose((rows, attributes), facts, permutations=30)
    drawn = [
        refitted_r2(rows[torch.randperm(60, generator=torch.Generator().manual_seed(i))], attributes, facts)
        for i in range(30)
    ]
    for null, values in zip((fit.null_in_sample, fit.null_leave_one_out), np.array(drawn).T, strict=True):
        assert abs(null.mean - values.mean()) < 4 * values.std() / 30**0.5  # other draws of one distribution
        assert 0.5 < null.sd / values.std() < 2


def test_rank_deficient_design_is_exact_and_of_one_rank_every_time() -> None:  # cases.md 1
    facts = random_bijections(1024, 4, seed=16)
    attributes = normal(1024, 20, seed=17) @ normal(20, 64, seed=18)
    maps = normal(4, 64, 64, seed=19)
    rows = torch.einsum("rmd,rsd->sm", maps, attributes[facts.answers])
    found = set()
    for _ in range(20):
        fit = decompose((rows, attributes), facts, permutations=1)
        error = (fit.rows(facts, attributes) - rows).norm() / rows.norm()
        assert error < 1e-5
        found.add(fit.rank)
    assert found == {80}


def test_a_fit_that_cannot_fail_says_so() -> None:  # cases.md 2
    facts = random_bijections(256, 4, seed=20)
    fit = decompose((normal(256, 64, seed=21), normal(256, 64, seed=22)), facts, permutations=20)
    assert fit.r2_in_sample == pytest.approx(1, abs=1e-9)
    assert fit.saturated
    assert fit.warning is not None
    assert "meaningless" in fit.warning
    assert fit.r2_leave_one_out <= 0
    assert fit.null_in_sample.mean == pytest.approx(1, abs=1e-9)
    assert fit.to_dict()["warning"] == fit.warning


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_the_numbers_of_single(dtype: torch.dtype) -> None:  # cases.md 3
    config = FactTransformerConfig(n_subjects=128, n_relations=2, n_attributes=128, d_model=16, d_mlp=32)
    facts = random_bijections(128, 2, seed=23)
    model = FactTransformer(config)
    single = decompose(model, facts, permutations=5)
    half = decompose(model.to(dtype), facts, permutations=5)
    assert half.r2_in_sample == pytest.approx(single.r2_in_sample, abs=1e-2)
    assert half.r2_leave_one_out == pytest.approx(single.r2_leave_one_out, abs=1e-2)
    assert half.rank == single.rank == 32


def test_a_row_that_is_not_a_number_is_named() -> None:  # cases.md 4
    facts = random_bijections(20, 2, seed=24)
    model = FactTransformer(FactTransformerConfig(n_subjects=20, n_relations=2, n_attributes=20, d_model=8, d_mlp=8))
    model.embed.W_subject.data[3, 0] = float("nan")
    with pytest.raises(MeasureError, match=r"subject 3 \(s3\).*not finite.*1 of 20"):
        decompose(model, facts)


def test_shares_of_orthogonal_components_are_their_variances() -> None:
    facts = random_bijections(500, 3, seed=25)
    attributes = normal(500, 6, seed=26).double()
    eye = torch.eye(18, dtype=torch.float64)
    weights = torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64)
    maps = torch.stack([w * eye[:, 6 * r : 6 * r + 6] for r, w in enumerate(weights)])
    rows = torch.einsum("rmd,rsd->sm", maps, attributes[facts.answers])
    fit = decompose((rows, attributes), facts, permutations=1)
    # dropped, a component leaves what the other two cannot mimic of it: about (1 - 12/500) of its variance
    share = weights**2 / (weights**2).sum()
    assert fit.shares_in_sample == pytest.approx((share * (1 - 12 / 499)).tolist(), abs=0.01)
    assert fit.shares == pytest.approx(share.tolist(), abs=0.05)
    assert fit.shares_in_sample[2] == pytest.approx(0, abs=1e-12)


def test_a_relation_given_twice_is_not_identifiable() -> None:
    one = random_bijections(100, 2, seed=27)
    facts = FactTable(answers=torch.cat([one.answers, one.answers[:1]]), n_attributes=100)
    rows, attributes, _, _ = exact_superposition(facts, 6)
    fit = decompose((rows, attributes), facts, permutations=1)
    assert fit.identifiable == (False, True, False)
    assert fit.warning is not None
    assert fit.r2_leave_one_out == pytest.approx(1, abs=1e-10)
    assert (fit.rank, fit.n_features) == (12, 18)


def test_vectors_of_lower_rank_do_not_spoil_identifiability() -> None:
    facts = random_bijections(100, 2, seed=28)
    attributes = normal(100, 3, seed=29) @ normal(3, 8, seed=30)
    fit = decompose((normal(100, 8, seed=31), attributes), facts, permutations=1)
    assert fit.identifiable == (True, True)
    assert fit.rank == 6


def test_subjects_without_facts_are_left_out_and_absent_facts_add_nothing() -> None:
    facts = partial_table(50, 2, 40, seed=32)
    answers = facts.answers.clone()
    answers[:, 7] = -1
    facts = FactTable(answers=answers, n_attributes=40)
    rows, attributes, _, intercept = exact_superposition(facts, 5)
    rows[7] = 1e6  # not part of any fact, so it must not matter
    fit = decompose((rows, attributes), facts, permutations=1)
    assert fit.n_subjects == int(facts.present.any(0).sum()) < 50
    assert fit.r2_leave_one_out == pytest.approx(1, abs=1e-10)
    torch.testing.assert_close(fit.intercept, intercept, atol=1e-8, rtol=0)


def test_reconstruction_recalls_in_the_perfect_selector_and_not_in_a_lookup_table() -> None:
    facts = random_bijections(128, 2, seed=33)
    fit = decompose(perfect_selector(facts), permutations=5)
    assert (fit.recall_rows, fit.recall_reconstructed) == (1.0, 1.0)
    assert fit.r2_leave_one_out == pytest.approx(1, abs=1e-10)
    assert fit.rank == 14
    table = decompose(lookup_table(facts, 24), permutations=5)
    assert table.recall_rows == 1.0
    assert table.recall_reconstructed is not None
    assert table.recall_reconstructed < 0.5
    assert table.r2_leave_one_out <= 0


def test_input_embeddings_of_attributes_when_tied() -> None:
    facts = random_bijections(64, 2, seed=34)
    plain = FactTransformerConfig(n_subjects=64, n_relations=2, n_attributes=64, d_model=8, d_mlp=8)
    tied = FactTransformer(dataclasses.replace(plain, tie_unembed=True))
    one, other = decompose(tied, facts, vectors="embed"), decompose(tied, facts)
    assert (one.vectors, other.vectors) == ("embed", "unembed")
    assert one.r2_in_sample == other.r2_in_sample
    with pytest.raises(MeasureError, match="no input embeddings of attributes"):
        decompose(FactTransformer(plain), facts, vectors="embed")


def test_bad_input_is_refused_with_a_reason() -> None:
    facts = random_bijections(20, 2, seed=35)
    rows, attributes = normal(20, 4), normal(20, 6)
    with pytest.raises(MeasureError, match="pass facts="):
        decompose((rows, attributes))
    with pytest.raises(MeasureError, match="21 subject vectors given for a table of 20"):
        decompose((normal(21, 4), attributes), facts)
    with pytest.raises(MeasureError, match="one width, got 4 and 6"):
        decompose((rows, attributes), facts, maps="scalar")
    with pytest.raises((ConfigError, TypeError), match="linear"):  # TypeError where types are checked at run time
        decompose((rows, attributes), facts, maps="lineer")  # pyright: ignore[reportArgumentType] - the point
    with pytest.raises((ConfigError, TypeError), match="unembed"):
        decompose((rows, attributes), facts, vectors="unembd")  # pyright: ignore[reportArgumentType] - the point
    with pytest.raises((MeasureError, TypeError)):
        decompose((rows.numpy(), attributes.numpy()), facts)  # pyright: ignore[reportArgumentType] - the point
    with pytest.raises((MeasureError, TypeError)):
        decompose((rows.long(), attributes), facts)
    with pytest.raises(ConfigError, match="permutations=0"):
        decompose((rows, attributes), facts, permutations=0)
    with pytest.raises(MeasureError, match="needs at least 3"):
        decompose((rows[:2], attributes[:2]), random_bijections(2, 1, seed=0))


def test_one_relation_and_constant_rows() -> None:
    facts = random_bijections(30, 1, seed=36)
    rows, attributes, maps, _ = exact_superposition(facts, 4)
    fit = decompose((rows, attributes), facts, permutations=3)
    torch.testing.assert_close(fit.maps, maps, atol=1e-9, rtol=0)
    assert fit.shares_in_sample[0] == pytest.approx(1)
    constant = decompose((torch.ones(30, 4), attributes), facts, permutations=3)
    assert np.isnan(constant.r2_in_sample)
    assert np.isnan(constant.null_in_sample.p)
    assert constant.warning is not None
    assert "not defined" in constant.warning
    assert constant.to_dict()["r2_in_sample"] is None


def test_a_component_that_never_varies_is_not_identifiable() -> None:
    answers = torch.stack([torch.randperm(30, generator=torch.Generator().manual_seed(0)), torch.zeros(30).long()])
    facts = FactTable(answers=answers, n_attributes=30)
    fit = decompose((normal(30, 4), normal(30, 4, seed=1)), facts, permutations=3)
    assert fit.identifiable == (True, False)  # the second is one with the intercept
    assert fit.warning is not None
    assert decompose((normal(30, 4), torch.zeros(30, 4)), facts, permutations=3).identifiable == (False, False)
