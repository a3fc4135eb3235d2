"""Data sets by name: the catalogue, the folder, the hub, slices and joins, and what is reported."""

import gzip
import json
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from paperlib.__main__ import main
from paperlib.errors import UserError
from paperlib.rl.collect import PromptStream
from paperlib.tasks import data
from paperlib.tasks.data import findings, load_problems, missing, normal_question, problem_count
from paperlib.tasks.rows import Problem, check_problems, to_problem
from paperlib.tasks.sources import CATALOGUE, FOLDER, Source, hub_unreachable, origin

ROWS = tomllib.loads((Path(__file__).parent / "rows.toml").read_text("utf-8"))


def write_rows(path, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def numbered(path, count=10):
    return write_rows(path, [{"question": f"Is it {i}?", "answer": i} for i in range(count)])


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """No folder, nothing in the hub's cache, nothing read or said before."""
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for cached in (data._catalogued, hub_unreachable):
        cached.cache_clear()
    yield
    data._catalogued.cache_clear()


@pytest.fixture
def hub(fresh, monkeypatch):
    """Stands in for the hub: rows by repository, and the calls made."""
    rows, calls = {}, []

    def load_dataset(repository, config, *, split, revision):
        calls.append((repository, config, split, revision))
        if repository not in rows:
            raise ConnectionError("no route to the hub\nand more")
        return rows[repository]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return SimpleNamespace(rows=rows, calls=calls)


# --- names


def test_slices_part_the_whole_and_ignore_the_order_of_rows(tmp_path):
    name = numbered(tmp_path / "n.jsonl")
    order = [p.answer for p in load_problems(f"{name}:0-")]
    assert order == ["7", "3", "4", "6", "1", "9", "2", "5", "8", "0"]  # runs depend on it
    assert [p.answer for p in load_problems(f"{name}:3-5")] == order[3:5]
    turned = write_rows(tmp_path / "t.jsonl", [
        {"question": f"is it {i} ?", "answer": i} for i in reversed(range(10))
    ])  # fmt: skip
    assert [p.answer for p in load_problems(f"{turned}:0-")] == order
    assert [problem_count(n) for n in (name, f"{name}:3-5", f"{name}:4-")] == [10, 2, 6]
    # copies of a question stay together
    rows = [{"question": f"Is it {i % 9}?", "answer": i} for i in range(18)]
    copies = [int(p.answer) for p in load_problems(write_rows(tmp_path / "c.jsonl", rows) + ":0-")]
    assert [a % 9 for a in copies[::2]] == [a % 9 for a in copies[1::2]]


def test_joins_and_what_binds_first(tmp_path):
    a = write_rows(tmp_path / "a.jsonl", [{"id": "x", "question": "q", "answer": "1"}])
    b = numbered(tmp_path / "b.jsonl.gz")
    assert [p.id for p in load_problems(f"{a}+{b}")] == ["x", *map(str, range(1, 11))]
    assert problem_count(f"{a}+{b}") == 11
    assert len(load_problems(f"{a}+{b}:0-10")) == 10  # of all eleven
    assert len(load_problems(f"{b}:2-4+{a}")) == problem_count(f"{b}:2-4+{a}") == 3
    with pytest.raises(UserError, match="1 rows with an id used before: x"):
        load_problems(f"{a}+{a}")
    odd = numbered(tmp_path / "a+b.jsonl", 2)  # a file whose name looks like a join
    assert (len(load_problems(odd)), len(load_problems(f"{odd}:0-1"))) == (2, 1)


def test_counts_need_no_data(hub, tmp_path):
    assert problem_count("math-3to5") == 5584  # of 5,586 rows two have no gold answer
    assert problem_count("dapo-math-17k+math-3to5:256-") == 17917 + 5584 - 256
    assert problem_count("tiny-train") == 128
    assert not hub.calls
    with pytest.raises(UserError, match="unknown data set 'gsm8k'; valid: .*gsm8k-train"):
        problem_count("gsm8k:0-4")
    name = numbered(tmp_path / "n.jsonl")
    for part in ("4-4", "5-4", "0-11", "10-"):
        for function in (load_problems, problem_count):
            with pytest.raises(UserError, match=f"has 10 problems; {part}"):
                function(f"{name}:{part}")


def test_the_stream_leaves_no_problem_out_and_resumes():
    problems = [Problem(str(i), "q", "1") for i in range(5)]
    stream = PromptStream(problems, [[i] for i in range(5)], seed=3)
    drawn = [stream.next(2) for _ in range(5)]
    flat = sum(drawn, [])
    assert sorted(flat[:5]) == sorted(flat[5:]) == list(range(5))  # two whole epochs
    again = PromptStream(problems, stream.prompt_ids, seed=3, drawn=4)
    assert again.next(2) == drawn[2]
    assert PromptStream(problems, stream.prompt_ids, seed=4).next(5) != flat[:5]


# --- rows of files


def test_lines_end_in_newlines_only(tmp_path):
    question = "Six balls.\u2028How\x85many are\x0crac{1}{2}?"
    path = write_rows(tmp_path / "n.jsonl", [{"question": question, "answer": "3"}] * 2)
    assert [p.question for p in load_problems(path)] == [question] * 2


@pytest.mark.parametrize(("answer", "gold"), ROWS["golds"] + ROWS["refused"])
def test_a_gold_is_what_was_written_or_refused_with_its_row(tmp_path, answer, gold):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "q", "answer": 1}\n{"question": "r", "answer": ' + answer + "}")
    if "gold" in gold:
        with pytest.raises(UserError, match=f"data set '.*mine.jsonl'[:,] {gold}"):
            load_problems(str(path))
    else:
        assert load_problems(str(path))[1].answer == gold


@pytest.mark.parametrize("changed", [
    {"question": "two \ud83d birds"}, {"answer": "\ud83d7"}, {"id": "a\ud83d"},
    {"subject": "\ud83d"}, {"level": "\ud83d"},
])  # fmt: skip
def test_half_a_character_is_named_with_its_row(tmp_path, capsys, changed):
    path = tmp_path / "n.jsonl"
    rows = [{"question": "q \U0001f426", "answer": "1"},
            {"id": "a", "question": "r", "answer": "7", **changed}]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))  # escaped, as JSON may be
    named = "1 rows with half a character, such as \\ud83d alone: a" + r"\ud83d" * ("id" in changed)
    assert main(["data", str(path)]) == 2
    assert capsys.readouterr().err.endswith(named + "\n")
    path.write_text(json.dumps(rows[0]))
    assert load_problems(str(path))[0].question == "q \U0001f426"


def test_catalogued_sets_are_checked_too(hub, capsys):
    rows = hub.rows[CATALOGUE["amc-aimo"].repository] = [{"problem": "q", "answer": True}]
    with pytest.raises(UserError, match="data set 'amc-aimo', row amc-aimo-0: .* is True; valid"):
        load_problems("amc-aimo")
    rows[:] = [{"problem": "q", "answer": "1"}, {"problem": "q\ud83d", "answer": "2"}]
    with pytest.raises(UserError, match=r"'amc-aimo': 1 rows with half a .*: amc-aimo-1$"):
        findings("amc-aimo")
    rows[1:] = [{"problem": "r", "answer": "\to{3}"}]  # papers trained on such a row
    assert load_problems("amc-aimo")[1].answer == "\to{3}"
    assert "1 gold answers with a control character, kept: amc-aimo-1" in capsys.readouterr().err


def test_problems_made_by_hand_are_checked():
    for changes, what in (
        ({"answer": float("nan")}, "not a text"), ({"answer": None}, "not a text"),
        ({"id": 3}, "not a text"), ({"question": None}, "not a text"),
        ({"answer": "\\boxed{}"}, "no gold answer"), ({"question": "\n"}, "no question"),
        ({"answer": "\x0crac{1}{2}"}, "control character"),
    ):  # fmt: skip
        one = replace(Problem("a", "q", "1"), **changes)
        with pytest.raises(UserError, match=f"'mine': 1 rows with .*{what}.*: {one.id}$"):
            check_problems([one], "mine")


@pytest.mark.parametrize("first", [b"", b"\n", b"\r\n"])
def test_a_byte_order_mark_is_passed_over(tmp_path, first):
    path = tmp_path / "n.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + first + b'{"question": "q", "answer": 1}\n')
    assert load_problems(str(path)) == [Problem("1" if not first else "2", "q", "1")]


ROW = b'{"question": "q", "answer": 1}\n'
ZIPPED = gzip.compress(ROW * 2, mtime=0)


@pytest.mark.parametrize(("name", "content", "says"), [
    *(("n.jsonl", ROW + line, "n.jsonl, line 2: not a problem")
      for line in (b"[1]", b'{"question": 3, "answer": 3}', b'{"answer": "1"}', b"{", b"\xff")),
    *(("n.jsonl.gz", content, "n.jsonl.gz, line .*: not a problem")
      for content in (ZIPPED[:-9], b"no gzip", ZIPPED[:15] + b"\xff\xff" + ZIPPED[17:])),
    ("n.jsonl", ROW.replace(b"1", b'""') * 2, "2 rows with no gold answer: 1, 2"),
    ("n.jsonl", b"", "is empty"), ("n.txt", b"", "unknown data set"),
])  # fmt: skip
def test_a_malformed_file_is_named_with_its_lines(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        load_problems(str(tmp_path / name))
    with pytest.raises(UserError, match="does not exist"):
        load_problems(str(tmp_path / "nowhere.jsonl"))


@pytest.mark.parametrize(("solution", "gold"), ROWS["solutions"])
def test_the_gold_of_a_worked_solution_is_its_last_box(solution, gold):
    source = Source("", "", 0, "", "", gold="box")
    assert to_problem("a", {"question": "q", "answer": solution}, source).answer == gold


# --- the folder


def test_folder_serves_catalogued_sets_and_reports_once(fresh, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    write_rows(tmp_path / "math_train_lvl3to5.jsonl", [  # not .gz: either is found
        {"question": "1+1?", "answer": "2", "level": 3, "subject": "Algebra"},
        {"question": "2+2?", "answer": " "},
        {"question": "3+3?", "answer": "6", "level": 5, "subject": "Algebra"},
        {"question": "1+1?", "answer": "3", "level": 3, "subject": "Algebra"},
    ])  # fmt: skip
    first = load_problems("math-3to5")
    assert first[1] == Problem("math-3to5-2", "3+3?", "6", 5, "Algebra")  # row 1 was dropped
    assert load_problems("math-3to5:0-2") and load_problems("math-3to5") == first
    said = capsys.readouterr().err
    assert said.count("math_train_lvl3to5.jsonl\n") == 1
    assert "data math-3to5: 1 rows without a gold answer, dropped: math-3to5-1\n" in said
    assert "4 rows read where the catalogue has 5,586" in said


def test_folder_must_exist_but_may_lack_a_file(hub, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    hub.rows["math-ai/amc23"] = [{"question": "q", "answer": "27"}]
    write_rows(tmp_path / "amc_oat.jsonl", [{"question": "q", "answer": "1", "level": 4.625}])
    assert load_problems("amc23+amc-aimo") == [
        Problem("amc23-0", "q", "27"), Problem("amc-aimo-0", "q", "1"),  # a rating is no level
    ]  # fmt: skip
    monkeypatch.setenv(FOLDER, "nowhere")
    with pytest.raises(UserError, match="PAPERLIB_DATA_DIR is 'nowhere'"):
        load_problems("gsm8k-test")


# --- the hub


@pytest.mark.parametrize("name", [n for n, s in CATALOGUE.items() if s.repository])
def test_fields_of_the_hub(hub, name):
    source, (row, gold) = CATALOGUE[name], ROWS["hub"][name]
    hub.rows[source.repository] = [row]
    problem = load_problems(name)[0]
    assert (problem.id, problem.question, problem.answer) == (f"{name}-0", "q", gold)
    assert problem.level == {"math-3to5": 5, "math500": 2}.get(name)
    subjects = [row[key] for key in ("subject", "type", "subfield") if key in row]
    assert problem.subject == (subjects[0] if subjects else None)
    config = {"gsm8k": "main", "dapo": "all", "math-3to5": "default", "math-geo": "geometry"}
    wanted = next((c for start, c in config.items() if name.startswith(start)), None)
    assert hub.calls == [(source.repository, wanted, source.split, source.revision)]


def test_levels_are_filtered_and_boxless_rows_dropped(hub, capsys):
    row = {"problem": "q", "type": "Algebra", "solution": "\\boxed{1}"}
    hub.rows[CATALOGUE["math-3to5"].repository] = [
        {**row, "level": "Level 2"}, {**row, "level": "Level 3", "solution": "\\boxed{}"},
        {**row, "level": "Level ?"}, {**row, "level": "Level 3"},
    ]  # fmt: skip
    assert [p.id for p in load_problems("math-3to5")] == ["math-3to5-1"]
    assert "1 rows without a gold answer, dropped: math-3to5-0" in capsys.readouterr().err
    hub.rows[CATALOGUE["dapo-math-17k"].repository] = [{"prompt": "q", "solution": "1"}]
    assert findings("dapo-math-17k")[1].endswith("has 17,398")  # the hub's count, not the file's


def test_what_the_hub_cannot_give_is_told_with_both_ways(hub):
    with pytest.raises(UserError) as error:
        load_problems("gsm8k-test")
    said = str(error.value)
    assert "openai/gsm8k at 740312add" in said and "ConnectionError: no route to the hub)" in said
    assert "go online, or set PAPERLIB_DATA_DIR to a folder with gsm8k_test.jsonl" in said
    with pytest.raises(UserError, match="'minerva-oat' is in no hub repository; set PAPERLIB_DATA"):
        load_problems("minerva-oat")
    hub.rows["openai/gsm8k"] = [{"problem": "q", "answer": "#### 1"}]
    with pytest.raises(UserError, match="row gsm8k-test-0 has no field 'question'; it has problem"):
        load_problems("gsm8k-test")


def test_what_lacks_here(fresh, tmp_path):
    (lacks,) = missing("tiny-train+gsm8k-test:0-64")
    assert "gsm8k_test.jsonl in $PAPERLIB_DATA_DIR (unset)" in lacks and "HF_HUB_OFFLINE" in lacks
    (tmp_path / "cache" / "datasets--openai--gsm8k" / "snapshots").mkdir(parents=True)
    assert missing("gsm8k-train+gsm8k-test") == []
    assert "no hub repository" in missing("minerva-oat")[0]


# --- reports


@pytest.mark.parametrize(("one", "other", "same"), ROWS["spellings"])
def test_same_question_in_another_spelling(one, other, same):
    assert (normal_question(one) == normal_question(other)) is same


def test_a_changed_copy_of_as_many_rows_is_noticed(fresh, tmp_path, monkeypatch):
    rows = [{"question": f"Is it {i}?", "answer": str(i)} for i in range(40)]
    monkeypatch.setenv(FOLDER, str(tmp_path))
    source = replace(CATALOGUE["amc23"], digest="9d2eae4fb118e996")
    monkeypatch.setitem(CATALOGUE, "amc23", source)
    other = "other questions or answers than in the file that was catalogued"
    turned = [{"question": f" {r['question']}\n", "answer": f"{r['answer']} "} for r in rows[::-1]]
    for copy, changed in ((rows, False), (turned, False), ([*rows[1:], rows[1]], True)):
        data._catalogued.cache_clear()
        write_rows(tmp_path / "amc23.jsonl", copy)
        assert (other in findings("amc23")) == changed  # not by order or white space


def test_command(fresh, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    path = write_rows(tmp_path / "amc23.jsonl", [{"question": "q", "answer": "3"}])
    assert main(["data"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[: len(CATALOGUE)]] == list(CATALOGUE)
    assert listed[list(CATALOGUE).index("amc23")].split() == ["amc23", "test", "40", path]
    assert listed[list(CATALOGUE).index("minerva-oat")].endswith("not here")
    assert FOLDER in listed[-1] and "gsm8k-train: no gsm8k_train.jsonl.gz in" in listed[-1]
    assert main(["data", "amc23"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"amc23\n  1 problems from {path}\n") and "AMC is two benchmarks" in out
    assert "0 golds that the grader compares as text only" in out
    assert main(["data", "nothing"]) == 2


def test_catalogue_is_pinned():
    assert len({s.file for s in CATALOGUE.values()}) == len(CATALOGUE)
    for source in CATALOGUE.values():
        assert re.fullmatch(r"[0-9a-f]{16}", source.digest)
        assert source.role in ("train", "test")
        assert bool(re.fullmatch(r"[0-9a-f]{40}", source.revision)) == bool(source.repository)


# --- the real data, where it is


@pytest.mark.parametrize("name", CATALOGUE)
def test_real_sets_are_what_was_catalogued(real_data, name):
    source, said = CATALOGUE[name], "\n".join(findings(name))
    assert len(load_problems(name)) == problem_count(name) == source.rows - source.empty
    assert "where the catalogue has" not in said and "than in the file" not in said
    assert ("2 rows without a gold answer, dropped" in said) == (name == "math-3to5")
    assert ("kept: numinamath-tir-9312" in said) == (name == "numinamath-tir")


def test_real_golds_are_the_last_boxes_of_their_solutions(real_data):
    box = Source("", "", 0, "", "", answer="solution", gold="box")
    with open(origin(CATALOGUE["math500"])[0], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [to_problem("", row, box).answer for row in rows] == [r["answer"].strip() for r in rows]


@pytest.mark.parametrize(
    ("train", "held_out", "first"),
    [  # with the first problem held out: runs depend on the order
        ("dapo-math-17k+math-3to5:256-", "dapo-math-17k+math-3to5:0-256", "dapo-math-17k-9682"),
        ("numinamath-tir:0-2000", "numinamath-tir:2000-2256", "numinamath-tir-9951"),
        ("gsm8k-train:0-96", "gsm8k-train:96-160", "gsm8k-train-7294"),
    ],
)
def test_real_validation_is_held_out(real_data, train, held_out, first):
    kept, held = load_problems(train), load_problems(held_out)
    assert (len(kept), len(held)) == (problem_count(train), problem_count(held_out))
    asked = {normal_question(p.question) for p in kept}
    assert not any(normal_question(p.question) in asked for p in held)
    assert held[0].id == first
