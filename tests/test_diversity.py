"""Diversity of samples against values by hand."""

import math

import numpy as np
import pytest

from paperlib.errors import UserError
from paperlib.evaluation.diversity import pairwise_diversity, tfidf_vectors


def test_mean_over_pairs_not_over_samples():
    # at 0, 60 and 90 degrees: cosines 1/2, 0 and cos 30
    vectors = [[1, 0], [0.5, math.sqrt(0.75)], [0, 1]]
    expected = 100 * (1 - (0.5 + 0 + math.sqrt(0.75)) / 3)
    assert pairwise_diversity(np.array([vectors])) == pytest.approx([expected])


def test_one_number_a_question_whatever_the_length_of_the_vectors():
    alike, apart, opposite = [[1, 0], [3, 0]], [[1, 0], [0, 7]], [[1, 1], [-2, -2]]
    found = pairwise_diversity(np.array([alike, apart, opposite]))
    assert found == pytest.approx([0, 100, 200])
    assert (found >= 0).all()  # rounding must not give -0.0000001


def test_texts_without_tokens_are_alike_and_unlike_all_others():
    vectors = tfidf_vectors(["", "\n", "six", "", "", "six"]).reshape(2, 3, -1)
    # pairs of "", "", six: alike, unlike, unlike
    assert pairwise_diversity(vectors) == pytest.approx([200 / 3, 200 / 3])
    assert pairwise_diversity(tfidf_vectors([" ", ""]).reshape(1, 2, -1)) == pytest.approx([0])


def test_tfidf_sees_signs_and_single_digits():
    plus, minus = "5+3=8", "5-3=2"
    a, b, c = tfidf_vectors([plus, minus, plus])
    assert a @ c == pytest.approx(1)
    assert 0.1 < a @ b < 0.9


def test_tfidf_by_hand():
    """Two texts, one word in common: idf 1 for it, 1 + ln(3/2) for a word of one text."""
    rare = 1 + math.log(3 / 2)
    a, b = tfidf_vectors(["x y", "X z"])
    assert a @ b == pytest.approx(1 / (1 + rare**2))


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UserError, match="at least 2 samples"):
        pairwise_diversity(np.ones((4, 1, 3)))
    with pytest.raises(UserError, match="expected \\[questions, samples, d\\]"):
        pairwise_diversity(np.ones((4, 3)))
    with pytest.raises(UserError, match="finite values"):
        pairwise_diversity(np.array([[[1.0, np.nan], [1.0, 0.0]]]))
