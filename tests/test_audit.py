"""What the audit finds in the printed numbers, and that altered ones change it."""

import copy
from functools import cache

import pytest

from paperlib.errors import UserError
from paperlib.report.audit import (
    CONSISTENT,
    INCONSISTENT,
    UNCHECKED,
    Audited,
    possible,
    to_frame,
    write_audit,
)
from paperlib.report.audit_meds import meds_audit
from paperlib.report.audit_memory_r import memory_r_audit
from paperlib.report.published import published

AUDITS = {"memory_r": memory_r_audit, "meds": meds_audit}


@cache
def as_printed(paper):
    return AUDITS[paper](published(paper))


def find(paper, statement, data=None, where=""):
    rows = as_printed(paper) if data is None else AUDITS[paper](data)
    (row,) = [r for r in rows if statement in r.statement and where in r.where]
    return row


def cell(data, model, method, table="table1"):
    (row,) = [r for r in data[table] if r["model"] == model and r["method"] == method]
    return row


def test_possible_means_by_hand():
    # three runs of 30 problems: multiples of 1.11 %
    assert [possible(m, 30, 3) for m in (0.0, 1.1, 2.2, 3.3, 4.4)] == [True] * 5
    assert not any(possible(m, 30, 3) for m in (0.3, 0.7, 1.0, 3.4))
    assert possible(63.6, 272, 1, decimals=1) and possible(63.60, 272, 1, decimals=2)
    assert not possible(68.02, 272, 1, decimals=2)  # 185 of 272 are 68.015 %


def test_possible_spreads_by_hand():
    # {0, 0, 3.33} has mean 1.11, std 1.92; {0, 3.33, 6.67} 3.33, 3.33
    assert possible(1.1, 30, 3, 1.9) and possible(3.3, 30, 3, 3.3) and possible(3.3, 30, 3, 0.0)
    assert not possible(1.1, 30, 3, 1.6)  # the same with ddof 0
    assert not possible(2.2, 30, 3, 0.0)


def test_memory_r_in_its_own_numbers():
    wins = find("memory_r", "ranks highest")
    assert wins.verdict == INCONSISTENT
    assert wins.printed == "R1 2, Cosine 7, Memory-R 8, Memory-R+ 10"
    assert wins.computed == "R1 2, Cosine 7, Memory-R 7, Memory-R+ 9"
    cosine = find("memory_r", "every column: Cosine")
    assert cosine.verdict == INCONSISTENT
    for column in ("GSM8K last", "GSM8K best", "MATH-500 last", "MATH-500 best"):
        assert f"Falcon {column}" in cosine.computed
    assert "Qwen GSM8K best: Memory-R 36.0, Memory-R+ 34.0" in find(
        "memory_r", "every column: Memory-R").computed
    assert find("memory_r", "not below the last").computed == (
        "Llama R1 AIME24: last 3.3 > best 2.2")
    assert find("memory_r", "three runs", where="Table 1").verdict == CONSISTENT
    second = find("memory_r", "three runs", where="Table 2")
    assert second.verdict == INCONSISTENT and "impossible: 2" in second.computed
    assert "0.3 ± 0.8 (mean)" in second.computed and "0.7 ± 1.0 (mean)" in second.computed
    assert find("memory_r", "significantly surpasses").verdict == UNCHECKED


@pytest.mark.parametrize(("statement", "where", "change"), [
    ("ranks highest", "", lambda d: d["wins_named_in_text"].update(
        {"Memory-R": 7, "Memory-R+": 9})),
    ("not below the last", "", lambda d: cell(d, "Llama-3.2-1B-Instruct", "R1")["AIME24"].update(
        best={"mean": 3.3, "std": 0.0})),
    ("three runs", "Table 2", lambda d: [d["table2"]["AIME24"][m].__setitem__(
        1, {"mean": 1.1, "std": 1.9}) for m in ("best", "last")]),
])  # fmt: skip
def test_memory_r_mended_numbers_are_consistent(statement, where, change):
    data = published("memory_r")
    assert find("memory_r", statement, where=where).verdict == INCONSISTENT
    change(data)
    assert find("memory_r", statement, data, where).verdict == CONSISTENT


@pytest.mark.parametrize(("statement", "where", "change"), [
    ("three runs", "Table 1", lambda d: cell(d, "Falcon3-1B-Instruct", "R1")["AIME24"].update(
        best={"mean": 1.1, "std": 1.6})),
    ("K > 1", "", lambda d: d["table2"]["GSM8K"]["best"].__setitem__(0, {"mean": 40, "std": 1})),
    ("K = 20 consistently", "", lambda d: d["table2"]["GSM8K"]["best"].__setitem__(
        2, {"mean": 30, "std": 1})),
    ("gains of the memory", "", lambda d: cell(d, "Llama-3.2-1B-Instruct", "Memory-R+")[
        "GSM8K"].update(best={"mean": 60.0, "std": 1.0})),
    ("verifies itself", "", lambda d: d["self_verification_of_100"].update({"Memory-R+": 8})),
    ("diversity", "", lambda d: d["table6_diversity_x100"]["R1"].update(tfidf=30.0)),
    ("underperforms", "", lambda d: [r.update({b: {"last": {"mean": 0.0}, "best": None}})
        for r in d["table1"] if r["method"] == "Base" for b in ("GSM8K", "MATH-500", "AIME24")]),
])  # fmt: skip
def test_memory_r_altered_numbers_are_found(statement, where, change):
    data = published("memory_r")
    assert find("memory_r", statement, where=where).verdict != INCONSISTENT
    change(data)
    assert find("memory_r", statement, data, where).verdict == INCONSISTENT


def test_meds_in_its_own_numbers():
    assert find("meds", "up to 4.13").computed == (
        "4.13 over the best other row, Base (Qwen3-1.7B); over DAPO at most 5.89 (Qwen3-1.7B)")
    assert "DAPO (Qwen3-8B)" in find("meds", "up to 4.37").computed
    every = find("meds", "every variant")
    assert every.verdict == INCONSISTENT
    assert "14-diff pass@1 (55.52 against 55.61)" in every.computed
    assert "28 pass@128" in every.computed and "28-diff pass@128" in every.computed
    assert "Spearman 0.70" in find("meds", "mirrors that of pass@1 ").computed
    shared = find("meds", "share both cells")
    assert shared.computed == ("shared: Qwen2.5-Math-7B OlympiadBench: GRPO and "
                               "GRPO w/ Entropy Adv (42.57, 73.63)")
    assert find("meds", "most pronounced on Qwen3-8B, pass@1 ").verdict == INCONSISTENT
    assert find("meds", "means of the five").verdict == CONSISTENT
    assert "5.8 and 8.7 % more" in find("meds", "50 and 100 steps").computed
    assert find("meds", "HDBSCAN").computed.endswith("A1, A2 | B1, B2, B3")
    assert "†" in find("meds", "HDBSCAN").printed


def _entropy_row(data):
    cell(data, "Qwen2.5-Math-7B", "GRPO w/ Entropy Adv")["OlympiadBench"]["pass@1"] = 42.6


def _better_variants(data):
    for row in data["table2"]:
        if row["method"] in ("MEDS-28-diff", "MEDS-14-diff", "MEDS-28"):
            row["Average"] = {"pass@1": 56.0, "pass@128": 83.0}


@pytest.mark.parametrize(("statement", "change"), [
    ("share both cells", _entropy_row),
    ("every variant", _better_variants),
    ("mirrors that of pass@1 ", lambda d: d["figure5_right_agreement_percent"].update(
        {"14-diff": 50.0})),
    ("50 and 100 steps", lambda d: d["cost_minutes"].update(
        at_100_steps={"DAPO": 16.0, "MEDS": 17.0})),
    ("on Qwen3-8B, pass@1 ", lambda d: cell(d, "Qwen3-8B", "MEDS")["Average"].update(
        {"pass@1": 70.0})),
])  # fmt: skip
def test_meds_mended_numbers_are_consistent(statement, change):
    data = published("meds")
    assert find("meds", statement).verdict == INCONSISTENT
    change(data)
    assert find("meds", statement, data).verdict == CONSISTENT


@pytest.mark.parametrize(("statement", "change"), [
    ("up to 4.13", lambda d: cell(d, "Qwen3-1.7B", "Base")["Average"].update({"pass@1": 48.0})),
    ("largest pass@128", lambda d: cell(d, "Qwen3-8B", "MEDS")["AIME24"].update({"pass@128": 100})),
    ("best average", lambda d: cell(d, "Qwen3-8B", "GRPO")["Average"].update({"pass@128": 90})),
    ("most cases", lambda d: [r.update(AIME24={"pass@1": 99, "pass@128": 100}, Minerva={
        "pass@1": 99, "pass@128": 99}, MATH500={"pass@1": 99, "pass@128": 99})
        for r in d["table1"] if r["method"] == "GRPO"]),
    ("a single cluster", lambda d: d["table2"][1]["Average"].update({"pass@1": 56.0})),
    ("last 14 layers", lambda d: d["table2"][4]["Average"].update({"pass@1": 57.0})),
    ("means of the five", lambda d: cell(d, "Qwen3-8B", "MEDS")["Average"].update(
        {"pass@1": 66.75})),
    ("not below pass@1", lambda d: cell(d, "Qwen3-8B", "MEDS")["Minerva"].update(
        {"pass@128": 50.0})),
    ("same in both tables", lambda d: d["table2"][0]["AMC23"].update({"pass@1": 72.70})),
    ("HDBSCAN", lambda d: [d["figure7_heatmap"][k].__setitem__(0, d["figure7_heatmap"][k][4])
                           for k in d["figure7_heatmap"] if k.startswith("layer")]),
    ("bf16", lambda d: d["figure7_heatmap"]["layer_23"].__setitem__(0, -17.43)),
])  # fmt: skip
def test_meds_altered_numbers_are_found(statement, change):
    data = published("meds")
    assert find("meds", statement).verdict == CONSISTENT
    change(data)
    assert find("meds", statement, data).verdict == INCONSISTENT


def test_impossible_shares_name_the_cell():
    found = find("meds", "every pass@128 is").computed
    assert "Minerva 68.02 (nearest: 68.0147)" in found and "OlympiadBench 75.00" in found
    data = published("meds")
    cell(data, "Qwen3-8B", "GRPO")["AIME24"]["pass@128"] = 70.5
    assert "Qwen3-8B GRPO AIME24 70.50" in find("meds", "every pass@128 is", data).computed
    assert "single cluster AIME24 29.70" in find("meds", "every pass@1 is").computed


def test_the_audit_leaves_its_data_alone():
    data = published("meds")
    before = copy.deepcopy(data)
    meds_audit(data)
    assert data == before


def test_files(tmp_path):
    rows = [Audited("MEDS", "a | b", "Sec. 1", "50 %", "x_1", INCONSISTENT)]
    written = write_audit(rows, tmp_path, "paper_audit")
    assert [p.name for p in written] == [f"paper_audit.{s}" for s in ("md", "csv", "tex")]
    markdown = written[0].read_text()
    assert "a \\| b" in markdown and "**inconsistent**" in markdown
    assert written[1].read_text().splitlines()[1] == "MEDS,a | b,Sec. 1,50 %,x_1,inconsistent"
    assert "50 \\%" in written[2].read_text()
    assert list(to_frame(rows)) == ["paper", "statement", "where", "printed", "computed", "verdict"]
    with pytest.raises(UserError, match="unknown verdict 'wrong'"):
        Audited("MEDS", "", "", "", "", "wrong")
