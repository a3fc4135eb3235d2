"""Nine worked word problems in the format of the ``tags`` prompt, one of them per question.

Memory-R+ shows Llama-3.2-1B one in-context example per training sample, drawn at random from nine
GSM8K-style ones (released code; the problems and solutions here are ours). Every equation stands
in the text as ``a + b = c``, so that a test can compute it again.
"""

from __future__ import annotations

import hashlib

# question, reasoning, answer
EXAMPLES: tuple[tuple[str, str, str], ...] = (
    (
        "A baker sells 24 rolls in the morning and twice as many in the afternoon. How many rolls "
        "does the baker sell in the whole day?",
        "In the afternoon the baker sells 24 * 2 = 48 rolls.\n"
        "Over the whole day that is 24 + 48 = 72 rolls.",
        "72",
    ),
    (
        "Nora saves $15 a week for 8 weeks. She then buys a tent for $95. How many dollars does "
        "she have left?",
        "Nora saves 15 * 8 = 120 dollars.\n"
        "After buying the tent she has 120 - 95 = 25 dollars left.",
        "25",
    ),
    (
        "A school orders 6 boxes of pencils with 30 pencils each and shares them equally among 9 "
        "classes. How many pencils does each class get?",
        "The school has 6 * 30 = 180 pencils.\n"
        "Each of the 9 classes gets 180 / 9 = 20 pencils.",
        "20",
    ),
    (
        "Omar is 12 years old. His aunt is three times as old as he is. How old will his aunt be "
        "in 7 years?",
        "His aunt is 12 * 3 = 36 years old now.\n"
        "In 7 years she will be 36 + 7 = 43 years old.",
        "43",
    ),
    (
        "A train has 5 coaches with 64 seats each. On one trip 47 seats stay empty. How many seats "
        "are taken?",
        "The train has 5 * 64 = 320 seats.\n"
        "With 47 of them empty, 320 - 47 = 273 seats are taken.",
        "273",
    ),
    (
        "A jacket costs $80. In a sale its price falls by 25%. Leo also buys a scarf for $18. How "
        "many dollars does he pay in all?",
        "The price of the jacket falls by 80 * 25 / 100 = 20 dollars.\n"
        "The jacket now costs 80 - 20 = 60 dollars.\n"
        "Together with the scarf Leo pays 60 + 18 = 78 dollars.",
        "78",
    ),
    (
        "Mia reads 18 pages on Monday, 5 pages fewer on Tuesday, and on Wednesday as many as on "
        "the two days together. How many pages does she read in the three days?",
        "On Tuesday Mia reads 18 - 5 = 13 pages.\n"
        "On the first two days she reads 18 + 13 = 31 pages, and on Wednesday another 31.\n"
        "In the three days she reads 31 + 31 = 62 pages.",
        "62",
    ),
    (
        "A tank holds 240 liters. A pump fills 16 liters per minute while a leak loses 4 liters "
        "per minute. How many minutes does it take to fill the empty tank?",
        "Each minute the tank gains 16 - 4 = 12 liters.\n"
        "Filling it takes 240 / 12 = 20 minutes.",
        "20",
    ),
    (
        "A farmer packs 156 eggs into cartons of 12. Each carton sells for $4, and the cartons "
        "cost the farmer $9 in all. How many dollars of profit remain?",
        "The farmer fills 156 / 12 = 13 cartons.\n"
        "They sell for 13 * 4 = 52 dollars.\n"
        "After paying for the cartons, 52 - 9 = 43 dollars remain.",
        "43",
    ),
)


def worked_example(question: str) -> tuple[str, str]:
    """``(question, response)`` of the example that goes before ``question``.

    Drawn by a hash of the question: as good as at random over a data set, and the same in every
    run, on every machine and after a resume.
    """
    digest = hashlib.sha256(question.encode()).digest()
    asked, reasoning, answer = EXAMPLES[int.from_bytes(digest[:8]) % len(EXAMPLES)]
    return asked, f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>\n"
