"""What a model, a data set or a stranger's folder holds is data: never run, markup or a path."""

import ast
import io
import json
import os
import pickle
import re
import shutil
from pathlib import Path

import mistune
import numpy as np
import pandas as pd
import pytest
import torch
from bs4 import BeautifulSoup
from bs4.element import PreformattedString
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_batches import rollouts
from stub_api import api_error, running_stub
from test_notebooks import make_notebook

from paperlib.environment import ROOT
from paperlib.errors import NotebookError, UserError
from paperlib.experiments.notebooks import run_notebook
from paperlib.markdown import escape_markdown
from paperlib.methods.embeddings import TextEncoder
from paperlib.report.style import panels, plain
from paperlib.report.tables import (
    Cell,
    Column,
    Row,
    Table,
    escape_latex,
    html_table,
    pipe_table,
    to_markdown,
)
from paperlib.rl.checkpoint import load_state
from paperlib.rl.logs import write_rollouts
from paperlib.rl.policy import load_policy
from paperlib.tasks.tiny import ENCODER_DIR, MODEL_DIR

KEY = "sk-ant-very-secret"

# --- the code itself ------------------------------------------------------------------------

# what the grid above this process wrote into a private folder
ALLOWED = {("paperlib/experiments/jobs.py", "pickle.loads")}
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load",
    "pickle.loads", "yaml.load", "yaml.unsafe_load", "joblib.load", "np.fromfile", "sp.sympify",
    "sympy.sympify", "subprocess.getoutput", "subprocess.getstatusoutput",
}


def sources():
    """Every module of the library and every code cell of the notebooks."""
    for path in sorted((ROOT / "paperlib").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text()
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                lines = "".join(cell["source"]).splitlines()
                yield (path.relative_to(ROOT).as_posix(),
                       "\n".join(line for line in lines if not line.startswith(("%", "!"))))


def dangers(source):
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, options = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
        if name in FORBIDDEN:
            yield name
        if name == "torch.load" and options.get("weights_only") != "True":
            yield name
        if options.get("allow_pickle") == "True" or options.get("shell", "False") != "False":
            yield f"{name}(shell or pickle)"
        if options.get("trust_remote_code", "False") != "False":
            yield f"{name}(trust_remote_code)"


def test_nothing_runs_text_or_unpickles_files():
    found = {(path, name) for path, source in sources() for name in dangers(source)}
    assert found == ALLOWED
    assert list(dangers("torch.load(f); eval(x); run(c, shell=True)")) == [
        "torch.load", "eval", "run(shell or pickle)"]


# --- folders of strangers -------------------------------------------------------------------


class Evil:
    """Unpickling it makes the file that it names."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def test_a_checkpoint_that_holds_code_does_not_run_it(tmp_path):
    torch.save({"step": 1, "terms": Evil(tmp_path / "MARK")}, tmp_path / "state.pt")
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        load_state(tmp_path)
    assert not (tmp_path / "MARK").exists()
    torch.load(tmp_path / "state.pt", weights_only=False)
    assert (tmp_path / "MARK").exists()  # it would have


CODE = "import os\nos.mkdir({mark!r})\nclass {name}:\n    pass\n"


@pytest.fixture
def model_folder(tmp_path):
    return Path(shutil.copytree(MODEL_DIR, tmp_path / "model"))


@pytest.mark.parametrize("kind", ["known", "unknown"])
def test_code_in_a_models_folder_does_not_run(model_folder, tmp_path, monkeypatch, kind):
    """Named by the config, beside an architecture that transformers has or has not."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # whoever asks is told yes
    mark = str(tmp_path / "MARK")
    (model_folder / "evil.py").write_text(CODE.format(mark=mark, name="Evil"))
    config = json.loads((model_folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    tokenizer = json.loads((model_folder / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = {"AutoTokenizer": ["evil.Evil", None]}
    (model_folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    if kind == "unknown":
        config["model_type"] = "evil"
    (model_folder / "config.json").write_text(json.dumps(config))
    if kind == "unknown":
        with pytest.raises(UserError, match="cannot load model"):
            load_policy(model_folder)
    else:
        load_policy(model_folder)
    assert not Path(mark).exists()


def test_pickled_weights_do_not_run(model_folder, tmp_path):
    (model_folder / "model.safetensors").unlink()
    torch.save({"weight": Evil(tmp_path / "MARK")}, model_folder / "pytorch_model.bin")
    with pytest.raises((UserError, pickle.UnpicklingError)):
        load_policy(model_folder)
    assert not (tmp_path / "MARK").exists()


def test_code_in_an_encoders_folder_does_not_run(tmp_path):
    folder = Path(shutil.copytree(ENCODER_DIR, tmp_path / "encoder"))
    (folder / "evil.py").write_text(CODE.format(mark=str(tmp_path / "MARK"), name="Evil"))
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "evil.Evil"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UserError, match="cannot load the sentence encoder"):
        TextEncoder(str(folder)).encode(["one"])
    assert not (tmp_path / "MARK").exists()


# --- texts ----------------------------------------------------------------------------------

EVIL = st.lists(
    st.sampled_from([
        "<script>", "</pre>", "</td></tr></table>", "<img src=x onerror=alert(1)>", "&lt;b&gt;",
        "|", "\n", "\r", "`", "```", "**", "_a_", "[x](javascript:alert(1))", "![x](y)", "\\", "$",
        "#", "~~", "&", "<!--", "'", '"', "1. ", " - ", "a", "é", "{", "}", "^", "%",
    ]), max_size=12,
).map("".join)  # fmt: skip


def parsed(page):
    """The tags of a page with the names of their attributes, and the texts of its cells."""
    soup = BeautifulSoup(page, "html.parser")
    assert not soup.find_all(string=lambda text: isinstance(text, PreformattedString))  # comments
    return ({(tag.name, *tag.attrs) for tag in soup.find_all(True)},
            [cell.get_text() for cell in soup.find_all("td")])  # fmt: skip


def rendered(markdown):
    html = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])
    return parsed(html(markdown))


@settings(max_examples=40)
@given(EVIL, EVIL)
def test_the_browser_shows_texts_and_no_markup(completion, answer):
    case = pd.DataFrame({"name": ["v1-00"], "answer": answer, "completion": completion})
    tags, cells = parsed(html_table(case))
    assert tags == {(t,) for t in ("table", "tr", "th", "td", "pre")}
    assert cells[1].removesuffix("\n") == answer.removesuffix("\n")
    tags, cells = rendered(pipe_table(case))
    allowed = {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert {tag for tag, *_ in tags} <= allowed and len(cells) == 3


@settings(max_examples=80)
@given(EVIL)
def test_escaped_markdown_shows_exactly_the_text(text):
    _, (cell,) = rendered(f"| a |\n|---|\n| x{escape_markdown(text)}x |\n")
    assert cell.strip() == f"x{' '.join(text.split())}x"


@settings(max_examples=40)
@given(EVIL)
def test_tables_show_texts_and_no_markup(text):
    shown = " ".join(f"x{text}x".split())
    table = Table(
        title=f"x{text}x", columns=(Column(f"x{text}x"),), notes=(f"x{text}x",),
        rows=(Row(f"x{text}x", (Cell.from_seeds([1.0]),)),), footer=(f"x{text}x",),
    )
    tags, cells = rendered(to_markdown(table))
    assert {tag for tag, *_ in tags} <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td",
                                         "ul", "li", "details", "summary"}  # fmt: skip
    assert cells[0].strip() == shown
    known = re.compile(r"\\text\w+\{\}|\\[&%$#_{}]|\{\[\}|\$\\\w+\$")
    assert not set(known.sub("", escape_latex(f"x{text}x"))) & set("\\&%$#_{}~^<>|[")


@pytest.mark.parametrize("name", ["$x_$", "$\\frac$", "5$", "a_b^c", "\\$", "$$"])
def test_figures_show_names_of_data_as_they_are(name):
    figure, axes = panels(1, 1)
    title = axes[0, 0].set_title(plain(name))
    figure.savefig(io.BytesIO())  # what it takes for mathematics and cannot read would raise
    assert not title._preprocess_math(title.get_text())[1]


def test_ids_and_texts_are_never_file_names(tmp_path):
    evil = "../../evil; touch MARK $(touch MARK) \x00<b>"
    names = {name: [evil] * 2 for name in ("problem_ids", "questions", "golds")}
    batch = rollouts([evil] * 2, **names)
    folder = tmp_path / "a" / "b" / "run"
    folder.mkdir(parents=True)
    write_rollouts(folder, batch, {"t": np.zeros(2)}, np.zeros(2), np.zeros(2))
    files = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"a/b/run/rollouts/000001.parquet"}


# --- the key --------------------------------------------------------------------------------


def test_a_notebook_that_fails_at_the_api_keeps_the_key_to_itself(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    path = make_notebook(
        tmp_path / "n.ipynb",
        "from paperlib.evaluation.annotate import Annotator\n"
        "from paperlib.evaluation.annotate_prompts import WITHIN_STEP_DIVERSITY\n"
        "Annotator(cache='cache').annotate(WITHIN_STEP_DIVERSITY, [{'solutions': ['a']}])",
    )
    for name in ("http_proxy", "https_proxy", "all_proxy", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with running_stub() as stub:
        stub.script = [(401, api_error("authentication_error", f"invalid {KEY}"), {})]
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        with pytest.raises(NotebookError, match="the API refuses the key") as caught:
            run_notebook(path, output=tmp_path / "out.ipynb")
        assert any(KEY in value for value in stub.headers[0].values())
    files = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert "out.failed.ipynb" in str(caught.value) and "UserError" in files
    assert KEY not in str(caught.value) and KEY not in files
