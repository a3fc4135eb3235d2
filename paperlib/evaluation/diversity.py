"""How much responses to one question differ: as vectors, and exactly where their ways are known.

Diversity (Memory-R+, Table 6) = 100 x (1 - mean cosine over the pairs of one question's samples),
averaged over questions: 0 if all samples are alike, 100 if they share nothing. Its two vector
spaces are TF-IDF and a sentence transformer's (:func:`paperlib.methods.embeddings.text_encoder`).
MEDS (Sec. 4.3) lets a language model score how diverse the rollouts of a prompt at one step are,
and how much later ones add to earlier ones. In the tiny world solution paths and error categories
are known, so that both become shares.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from paperlib.errors import UserError
from paperlib.tasks.grading import extract_answer
from paperlib.tasks.tiny.problems import tiny_problem
from paperlib.tasks.tiny.solutions import FAVOURITE, Step, diagnose, written_steps

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
    """Diversity ``[questions]``, x 100, of ``vectors [questions, samples, d]`` of any length. Two
    zero vectors count as alike, a zero vector shares nothing with any other."""
    data = np.asarray(vectors, dtype=np.float64)
    if data.ndim != 3 or data.shape[1] < 2 or not np.isfinite(data).all():
        raise UserError(
            f"vectors have shape {data.shape}; expected [questions, samples, d] of finite values "
            "with at least 2 samples"
        )
    norms = np.linalg.norm(data, axis=2, keepdims=True)
    empty = norms == 0
    # an extra dimension that only empty texts have: alike among themselves, unlike all others
    unit = np.concatenate([data / np.where(empty, 1.0, norms), empty.astype(float)], axis=2)
    cosines = unit @ unit.transpose(0, 2, 1)
    first, second = np.triu_indices(data.shape[1], k=1)
    # a cosine of two equal vectors may exceed 1 by rounding
    return 100 * (1 - cosines[:, first, second].mean(axis=1).clip(-1, 1))


def solution_path(completion: str) -> tuple[Step, ...]:
    """The equations a completion writes, in order; wording, checks and the answer do not count."""
    return tuple(written_steps(completion))


def pair_diversity(labels: Sequence[Hashable]) -> float:
    """1 - the probability that two different members of a group have the same label: unbiased for
    any group size (pairs are drawn without replacement), NaN for fewer than two."""
    n = len(labels)
    alike = sum(count * (count - 1) for count in Counter(labels).values())
    return 1 - alike / (n * (n - 1)) if n > 1 else float("nan")


def novelty(earlier: Sequence[Hashable], later: Sequence[Hashable]) -> float:
    """Share of the later group's members whose label no member of the earlier group has; NaN if
    either group is empty."""
    seen = set(earlier)
    new = [label not in seen for label in later]
    return sum(new) / len(new) if seen and new else float("nan")


def diagnosed(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Rollouts (``problem_id`` and ``completion``, as ``Run.rollouts``) with what they did:
    ``category`` (see ``diagnose``), ``favourite`` (of the prompt's thing), ``path`` and ``answer``
    (text, "" if there is none)."""
    problems = [tiny_problem(problem_id) for problem_id in rollouts["problem_id"]]
    texts = rollouts["completion"].tolist()
    return rollouts.assign(
        category=[diagnose(p, text) for p, text in zip(problems, texts, strict=True)],
        favourite=[FAVOURITE[problem.subject] for problem in problems],
        path=[solution_path(text) for text in texts],
        answer=[extract_answer(text) or "" for text in texts],
    )
