"""How much responses to one question differ (Memory-R+, Table 6).

Diversity = 100 x (1 - mean cosine over the pairs of one question's samples), averaged over
questions: 0 if all samples are alike, 100 if they share nothing. The paper has two vector spaces,
TF-IDF and a sentence transformer; the latter is :func:`paperlib.methods.embeddings.text_encoder`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paperlib.errors import UserError

# Words, numbers and single signs. Scikit-learn's own pattern drops whatever has one character, so
# that "5+3=8" and "5-3=2" would be the same text.
TOKEN = r"\w+|[^\w\s]"


def tfidf_vectors(texts: Sequence[str]) -> np.ndarray:
    """``[n, terms]`` TF-IDF vectors of unit length, a zero row for a text without any token.

    Scikit-learn's defaults (smooth idf, natural term counts, lower case) but for :data:`TOKEN`; the
    paper names no setting. The idf is that of ``texts``: give all texts that are to be compared.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(text.strip() for text in texts):
        return np.zeros((len(texts), 1))
    return TfidfVectorizer(token_pattern=TOKEN).fit_transform(texts).toarray()


def pairwise_diversity(vectors: np.ndarray) -> np.ndarray:
    """Diversity of each question's samples.

    Args:
        vectors: ``[questions, samples, d]``; any length. Two zero vectors count as alike, a zero
            vector shares nothing with any other.

    Returns:
        ``[questions]``, x 100.

    Raises:
        UserError: fewer than two samples a question; a vector that is not finite.
    """
    data = np.asarray(vectors, dtype=np.float64)
    if data.ndim != 3 or data.shape[1] < 2:
        raise UserError(
            f"vectors have shape {data.shape}; expected [questions, samples, d] with at least 2 "
            "samples"
        )
    if not np.isfinite(data).all():
        raise UserError("vectors hold a value that is not finite; diversity is not defined")
    norms = np.linalg.norm(data, axis=2, keepdims=True)
    empty = norms == 0
    # an extra dimension that only empty texts have: alike among themselves, unlike all others
    unit = np.concatenate([data / np.where(empty, 1.0, norms), empty.astype(float)], axis=2)
    cosines = unit @ unit.transpose(0, 2, 1)
    first, second = np.triu_indices(data.shape[1], k=1)
    # a cosine of two equal vectors may exceed 1 by rounding
    return 100 * (1 - cosines[:, first, second].mean(axis=1).clip(-1, 1))
