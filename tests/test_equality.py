"""Which answers are equal: every kind of spelling, number and collection, with its near misses."""

from __future__ import annotations

import pytest

from paperlib.tasks import symbolic
from paperlib.tasks.equality import equal
from paperlib.tasks.normal_form import clean, read_number, split_unit, word

EQUAL = [
    ("52_8", "52"),
    ("52_8", "52_{8}"),
    ("4210_{5}", "4210_5"),
    (r"3\frac{1}{2}", r"\frac{7}{2}"),
    (r"3\frac{1}{2}", "3.5"),
    ("3 1/2", "7/2"),
    (r"137 \frac{1}{2}", "137.5"),
    (r"1\frac{4}{5}", r"\frac{9}{5}"),
    (r"5\text{ cm}", "5"),
    ("5", r"5\text{ cm}"),
    (r"864 \mbox{ inches}^2", "864"),
    (r"864 \mbox{ inches}^2", r"864\text{ in}^2"),
    (r"15\mbox{ cm}^2", "15"),
    (r"\$18.90", "18.90"),
    (r"\$18.90", "18.9"),
    (r"\$36", "36 dollars"),
    (r"11,\! 111,\! 111,\! 100", "11111111100"),
    (r"10,\!080", "10080"),
    ("1,000,000", "1000000"),
    ("1000000", "1{,}000{,}000"),
    ("1000000", "1 000 000"),
    (r"90^\circ", "90"),
    (r"90^\circ", r"90 \text{ degrees}"),
    ("90", r"90^{\circ}"),
    (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}"),
    (r"\frac43", r"\frac{4}{3}"),
    (r"\frac 59", "5/9"),
    (r"\frac{3}{4}", "0.75"),
    (".35625", "0.35625"),
    (".0000672", "6.72e-5"),
    (".0000672", r"6.72 \times 10^{-5}"),
    ("4.5e33", r"4.5 \times 10^{33}"),
    ("4.5e33", r"4.5\cdot 10^{33}"),
    ("3e8", "300000000"),
    ("2.7778e-6", r"2.7778 \times 10^{-6}"),
    ("-1./3", r"-\frac{1}{3}"),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}"),
    (r"1 \pm \sqrt{19}", r"1 - \sqrt{19}, 1+\sqrt{19}"),
    (r"\{1\pm\sqrt{5},-2\}", r"-2, 1+\sqrt5, 1-\sqrt5"),
    ("3, 5, 7", "7,5,3"),
    ("3, 5, 7", r"\{3,5,7\}"),
    ("3, 5, 7", r"3, 5 \text{ and } 7"),
    ("1,-2", "-2, 1"),
    ("1,-2", r"x = 1 \text{ or } x = -2"),
    ("1,-2", "x = 1, x = -2"),
    ("x=5", "5"),
    ("5", "x=5"),
    ("y = 2x + 3", "y=2x+3"),
    ("y = 2x + 3", "2x+3"),
    ("y = 2x + 3", "y=3+2x"),
    ("y = 2x + 3", "y-2x=3"),
    ("5x - 7y + 11z + 4 = 0", "5x-7y+11z=-4"),
    ("5x - 7y + 11z + 4 = 0", "10x-14y+22z+8=0"),
    (r"(0,9) \cup (9,36)", r"(9,36)\cup(0,9)"),
    (r"x \in [-2,7]", "[-2,7]"),
    (r"x \in [-2,7]", r"-2 \le x \le 7"),
    ("[-2,7]", r"x \in [-2,7]"),
    ("(3,4]", r"3 < x \le 4"),
    ("(3,4]", r"4 \ge x > 3"),
    (r"(-\infty, 2) \cup (3, \infty)", r"x<2 \text{ or } x>3"),
    (r"(2,\infty)", "x>2"),
    (r"(2,\infty)", r"(2,+\infty)"),
    (r"(-\infty, 0]", r"x \leq 0"),
    (r"k \geqslant 2", r"k \ge 2"),
    (r"k \geqslant 2", r"[2,\infty)"),
    ("6 - 5i", "-5i+6"),
    (r"\sin^2 t", r"1-\cos^{2} t"),
    (r"\frac \pi4 + 2", r"2+\frac{\pi}{4}"),
    ("a + b + c", "c+a+b"),
    (r"\frac{1}{2^\frac{21}{4}}", r"2^{-21/4}"),
    (r"\{x | 2 < x < 3\}", "(2,3)"),
    (r"\{m \mid m \leq 1 \text{ or } m \geq 3\}", r"(-\infty,1]\cup[3,\infty)"),
    (r"\{x \in \mathbb{R} | x > 1\}", r"(1,\infty)"),
    (r"\approx 8.24 \text{ mph}", "8.24"),
    (r"11\sqrt2", r"11 \sqrt{2}"),
    (r"\frac{3\sqrt{3}}{4}", r"\frac{3}{4}\sqrt3"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
    (r"\frac{\sqrt{3}}{3}", "0.5773503"),
    (r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}",
     r"\begin{pmatrix} -\frac{1}{3} \\ \frac{2}{3} \\ \frac{5}{3} \end{pmatrix}"),
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}",
     r"\begin{bmatrix} -2 \\ -14 \\ -7 \end{bmatrix}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)"),
    ("p - q", "p-q"),
    ("(a+5)(b+2)", "(b+2)(a+5)"),
    ("6r^2-4r-24", "2(3r^2-2r-12)"),
    (r"\cot x", r"\frac{\cos x}{\sin x}"),
    (r"\frac{20000}{\pi}", "6366.19772"),
    (r"\text{ellipse}", "ellipse"),
    (r"\text{east}", "East"),
    (r"\text{(C)}", "C"),
    (r"\text{(C)}", "(C)"),
    (r"\text{(C)}", r"\textbf{(C)}"),
    ("C", "(C) 12"),
    ("12", "(C) 12"),
    ("2^{1009}", "2^{1009}"),
    ("2^{1009}", r"2\cdot 2^{1008}"),
    (r"\frac{100!}{2^{50}}", r"\frac{100!}{2^{50}}"),
    (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}"),
    ("10^{100}", "10^{100}"),
    ("62.5%", "0.625"),
    ("62.5%", "62.5"),
    ("62.5%", r"62.5\%"),
    (r"8 \%", "0.08"),
    ("15", r"15\%"),
    (r"2,-\log _{10} 250", r"-\log_{10} 250, 2"),
    ("f(x)=2 x", "2x"),
    ("f(x)=2x", "f(x)=x+x"),
    ("f(n)=n, g(n)=1", "f(n)=n, g(n)=1"),
    (r"\lfloor\sqrt{n-1}\rfloor", r"\left\lfloor \sqrt{n-1} \right\rfloor"),
    (r"\sqrt[3]{8}", "2"),
    (r"\emptyset", r"\{\}"),
    (r"\infty", r"+\infty"),
    ("1e-5", "0.00001"),
    ("0", "0.0"),
    ("0", "-0"),
    ("72", "72.0"),
    ("72", r"\textbf{72}"),
    ("72", r"\text{72}"),
    ("72", r"72\text{ apples}"),
    ("72", "72 apples"),
    ("72", r"\$72"),
    ("72", r"72 \text{dollars}"),
    ("72", "{72}"),
    ("1/2", r"\frac12"),
    ("50", r"\frac{100}{2}"),
    ("50", r"25\cdot2"),
    ("50", "25+25"),
    ("3:30", "3:30"),
    (r"2\sqrt{113}", r"2 \sqrt {113}"),
    (r"-\frac{35}{9}", r"\frac{-35}{9}"),
    (r"-\frac{35}{9}", "-35/9"),
    ("e^{t} / 3", r"\frac{e^t}{3}"),
    ("e^{t} / 3", r"\frac{1}{3}e^{t}"),
    (r"-3 \pm 2\sqrt2", r"-3-2\sqrt2, -3+2\sqrt2"),
    (r"\pm 3", "3,-3"),
    (r"\pm 3", r"\{-3,3\}"),
    ("(1,8,19), (2,7,13), (4,5,7)", "(2,7,13),(1,8,19),(4,5,7)"),
    ("(1,8,19), (2,7,13)", r"\{(1,8,19),(2,7,13)\}"),
    ("１２", "12"),
    ("−5", "-5"),
    ("½", "0.5"),
    ("2π", r"2\pi"),
    ("x²+1", "x^2+1"),
    ("2x^2", "2x²"),
    ("100, 200", "100,200"),
    ("2n", "n2"),
    (r"\text{yes}", "Yes"),
    ("true", "True"),
    (r"\frac{1}{3}", "0.3333333"),
    (r"\frac{1}{3}", r"33.33333\%"),
    ("7", "7."),
    ("7", "7,"),
    ("7", "07"),
    ("033", "33"),
    (r"2+\pi", r"\pi+2"),
    (r"2+\pi", "5.1415927"),
    (r"\frac{dM}{dt}=3", r"\frac{dM}{dt}=3"),
    ("12", r"12\text{ cm}^3"),
    ("12", "12 cm^2"),
    ("12", r"x = 12\text{ cm}"),
    (r"\frac{1}{2}", r"\frac{1}{2}\text{ cm}"),
    (r"2\sqrt{3}", r"2\sqrt{3}\text{ cm}"),
    (r"2\sqrt{3}\text{ cm}", r"2\sqrt{3}"),
    (r"16\pi", r"16\pi \text{ square units}"),
    (r"16\pi", "50.265482"),
    ("25", r"25\text{ km/h}"),
]
DIFFERENT = [
    (r"\{x | 2 < x < 3\}", "[2,3]"),
    (r"\frac \pi4 + 2", r"2+\frac{\pi}{3}"),
    ("52_8", "52_9"),
    (r"5\text{ cm}", r"5\text{ m}"),
    ("3, 5, 7", "3, 5"),
    ("x=5", "y=5"),
    (r"(0,9) \cup (9,36)", r"[0,9) \cup (9,36)"),
    ("(3,4]", "(3,4)"),
    (r"(2,\infty)", r"x\ge2"),
    ("6 - 5i", "6+5i"),
    (r"\begin{pmatrix} -2 \\ -14 \\ -7 \end{pmatrix}",
     r"\begin{pmatrix} -2 & -14 & -7 \end{pmatrix}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{3})"),
    ("p - q", "q-p"),
    (r"\text{ellipse}", "an ellipse"),
    (r"\text{(C)}", "D"),
    ("10^{100}", "10^{101}"),
    ("(1,8,19)", "1,8,19"),
    ("5", "−5"),
    ("abc", "cab"),
    ("xy", "yx"),
    (r"1+2+\dots+n", r"\frac{n(n+1)}{2}"),
    (r"\text{No}", "Yes"),
    (r"\frac{1}{3}", "0.33"),
    (r"2+\pi", "5.14"),
]


@pytest.mark.parametrize("gold, answer", EQUAL)
def test_equal(gold, answer):
    assert equal(gold, answer, symbolic.equivalent)


@pytest.mark.parametrize("gold, answer", DIFFERENT)
def test_different(gold, answer):
    assert not equal(gold, answer, symbolic.equivalent)


def test_a_relative_error_counts_and_an_integer_gold_is_exact():
    assert equal("0.3333333", "1/3", symbolic.equivalent)
    assert not equal("0.0000003", "0.0000004", symbolic.equivalent)
    assert not equal("100000000", "99999999.9", symbolic.equivalent)
    assert not equal("12345678901234567890", "12345678901234567891", symbolic.equivalent)
    assert not equal(r"\frac{1}{1500!}", r"\frac{1}{1502!}", symbolic.equivalent)
    assert equal(r"\frac{1}{1502!}", r"\frac{1}{1502 \cdot 1501!}", symbolic.equivalent)


def test_percentages_are_read_both_ways_and_only_where_a_sign_is_involved():
    for answer in ("0.15", "15", r"15\%", r"15 \text{ percent}", "15 percent"):
        assert equal(r"15\%", answer, symbolic.equivalent)
    assert not equal("0.15", "15", symbolic.equivalent)
    assert not equal("1500", r"15\%", symbolic.equivalent)


def test_most_pairs_need_no_symbolic_mathematics():
    def refuse(gold, answer):
        raise AssertionError(f"{gold} and {answer} went to the symbolic workers")

    for gold, answer in (("72", "71"), ("72", "72.0"), ("1,250", "$1250"), ("7", "7 apples"),
                         (r"\frac{3}{4}", "0.75"), ("12", "1 2 3"), ("Leon", "Noel"),
                         ("4.5e33", r"4.5 \times 10^{33}"), ("(1,2)", "(1,3)")):
        equal(gold, answer, refuse)


def test_normal_forms():
    assert clean(r"$\dfrac{1}{2}$.") == r"\frac{1}{2}"
    assert clean(r"\left( 3,\, 4 \right)").replace(" ", "") == "(3,4)"
    assert clean(r"\begin{pmatrix}1\\ 2\end{pmatrix}") == r"\begin{pmatrix}1\\ 2\end{pmatrix}"
    assert split_unit(r"15\text{ cm}^2") == ("15", "cm")
    assert split_unit("2x") == ("2x", "")
    assert word(r"\text{Leon}") == word("LEON") == "leon" and word("x") is None
    assert word("2x") is None and word(r"\pi") is None and word("a+b") is None
    assert float(read_number(r"137 \frac{1}{2}").value) == 137.5
    assert float(read_number(r"-1\frac{1}{2}").value) == -1.5
    assert read_number("1e999999999") is None and read_number("1/0") is None
    assert read_number("9" * 5000) is None
