"""Tutorials, notebooks and the page of mathematics do what they say; the site builds without a warning."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision
from scipy import integrate, stats
from torch import Tensor

from arelu_meta.activations.arelu import arelu
from arelu_meta.activations.controls import RMS_GAIN_OVER_RELU
from arelu_meta.activations.elsa import ELSA
from tests.pages import DOCS, PAGES, blocks, execute, execute_notebook
from tests.test_public_names import PUBLIC

NOTEBOOKS = sorted(path.name for path in DOCS.glob("notebooks/*.ipynb"))
# Pages with Python that no test runs, and why.
NOT_RUN = {"performance.md": "two lines that set a variable before torch is loaded, which here it is"}
pytestmark = pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # the import of mlflow.pyfunc warns


@pytest.mark.usefixtures("workplace")
def test_first_run(capsys: pytest.CaptureFixture[str]):
    execute("tutorials/first_run.md")
    assert "arelu in mnist_conv: 5-way 1-shot maml on digits" in capsys.readouterr().out


def test_timm_surgery(capsys: pytest.CaptureFixture[str]):
    names = execute("tutorials/timm_surgery.md")
    sites = names["report"].sites
    assert capsys.readouterr().out.startswith(f"{len(sites)} sites, {2 * len(sites)} learned numbers\n")
    assert names["loss"].item() < math.log(4)  # guessing among four classes
    assert not any(type(module).__name__ == "AReLU" for module in names["network"].modules())


def test_own_activation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from arelu_meta import compare

    (tmp_path / "mine.py").write_text(blocks("tutorials/own_activation.md", "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)  # of another page
    monkeypatch.chdir(tmp_path)
    execute("tutorials/own_activation.md")
    assert capsys.readouterr().out == "17 call sites, each with a slope of its own\n"
    Path("leaky.toml").write_text(blocks("tutorials/own_activation.md", "toml")[0])
    assert compare.main(["leaky.toml", "--dry-run", "--trust", "mine"]) == 0
    assert "leaky: 15 cells of task digits" in capsys.readouterr().out  # 3 activations, 5 seeds


def test_own_learner(capsys: pytest.CaptureFixture[str]):
    """Guessing gets a third; stripes are easy, and training helps both."""
    names = execute("tutorials/own_learner.md")
    assert names["learner"].final_accuracy(names["test"]).mean() > 0.5
    assert names["half_sure"].final_accuracy(names["test"]).mean() > 0.5
    assert capsys.readouterr().out.startswith("stripes (120, 1, 12, 12) 6 classes\n")


@pytest.mark.usefixtures("workplace")
def test_comparison(capsys: pytest.CaptureFixture[str]):
    """Differences 4, 3, 5, 3, 3 points: mean 3.6, standard error 0.4, t = 9 on 4 degrees of freedom, p = 0.0008."""
    names = execute("tutorials/comparison.md")
    differences = [4, 3, 5, 3, 3]
    assert stats.sem(differences) == pytest.approx(0.4)
    assert stats.ttest_1samp(differences, 0).pvalue < 0.001
    assert capsys.readouterr().out.splitlines()[-1] == "different 0"
    assert names["judgement"].exit_code == 0


def test_coming_from(capsys: pytest.CaptureFixture[str]):
    """The meta-gradient is that of a loop by plain autograd, written as the page shows higher's."""
    names = execute("coming_from.md")
    model, episode = names["model"], names["episode"]
    weights = dict(model.named_parameters())
    adapted = weights
    for _ in range(5):
        answers = torch.func.functional_call(model, adapted, episode.support_x[0])
        loss = torch.nn.functional.cross_entropy(answers, episode.support_y[0])
        gradients = torch.autograd.grad(loss, list(adapted.values()), create_graph=True)
        steps = zip(adapted.items(), gradients, strict=True)
        adapted = {name: value - 0.1 * gradient for (name, value), gradient in steps}
    answers = torch.func.functional_call(model, adapted, episode.query_x[0])
    loss = torch.nn.functional.cross_entropy(answers, episode.query_y[0])
    (expected,) = torch.autograd.grad(loss, weights["1.weight"])
    torch.testing.assert_close(names["meta_gradient"], expected, rtol=1e-4, atol=1e-6)
    assert "query accuracy" in capsys.readouterr().out


def test_surgery(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """With untrained weights in the place of the download."""
    states = torchvision.models.resnet18().state_dict()
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", lambda *_args, **_options: states)
    names = execute("surgery.md")
    assert names["report"].parts == ("vit.layers.0.mlp", "vit.layers.1.mlp")
    assert "ResNet: 17 sites to arelu" in capsys.readouterr().out


def test_meta_learning(capsys: pytest.CaptureFixture[str]):
    """Under vmap torch's layer norm has another gradient than in a loop: the page prints both."""
    from arelu_meta import learners

    names = execute("meta_learning.md", learners=learners, network=torch.nn.Linear(3, 2))
    looped, vectorised = map(float, capsys.readouterr().out.split())
    assert abs(looped - vectorised) > 0.01 * looped
    assert names["learner"].network.out_features == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # figures are shown nowhere here
@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As `make docs` runs them in a kernel, and stored without outputs, which would be older than the code."""
    monkeypatch.setenv("ARELU_META_RUNS", str(tmp_path / "runs"))
    cells = json.loads((DOCS / "notebooks" / name).read_text())["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code" and cell["outputs"]] == []
    names = execute_notebook(name)
    if name == "adapt_and_predict.ipynb":
        assert sum(names["right"]) > 20  # guessing gets six of thirty
    elif name == "meta_learn.ipynb":
        assert all(curve[-1] > curve[0] + 0.1 for curve in names["curves"].values())
    else:
        torch.testing.assert_close(names["attributions"].sum((1, 2, 3)), names["change"], rtol=0.05, atol=0.3)
    import matplotlib.pyplot as plt

    plt.close("all")


def test_three_notebooks():
    assert NOTEBOOKS == ["adapt_and_predict.ipynb", "meta_learn.ipynb", "surgery_and_captum.ipynb"]


def test_every_page_with_python_is_run():
    """A new page has a test that calls `execute` with its name, or a reason above."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_docs*.py"))
    for page in PAGES:
        if "```python\n" in page.read_text() and page.name not in NOT_RUN:
            place = page.relative_to(DOCS).as_posix() if page.is_relative_to(DOCS) else f"../{page.name}"
            assert f'execute("{place}"' in tests, place
    assert all((DOCS / name).is_file() for name in NOT_RUN)


def formulas(x: Tensor, upstream: Tensor, alpha: float, beta: float, base: str) -> dict[str, Tensor]:
    """The gradients as docs/mathematics.md writes them; of the base ReLU's, or with tanh's own derivative."""
    bounded, sigma = min(max(alpha, 0.01), 0.99), 1 / (1 + math.exp(-beta))
    own = (x >= 0).double() if base == "relu" else 1 - x.tanh() ** 2
    inside = float(0.01 <= alpha <= 0.99)
    return {
        "x": upstream * (own + torch.full_like(x, sigma).masked_fill(x < 0, bounded)),
        "alpha": inside * (upstream * x)[x < 0].sum(),
        "beta": sigma * (1 - sigma) * (upstream * x)[x >= 0].sum(),
    }


@pytest.mark.parametrize("base", ["relu", "tanh"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.9, 2.0), (0.3, -1.0), (1.2, 0.0), (-0.1, 0.5)])
def test_gradients_of_the_page(alpha: float, beta: float, base: str):
    random = torch.Generator().manual_seed(0)
    x, upstream = (torch.randn(50, generator=random, dtype=torch.float64) for _ in range(2))
    layer = ELSA(base, alpha, beta).double()
    x.requires_grad_()
    (upstream * layer(x)).sum().backward()
    found = {"x": x.grad, "alpha": layer.alpha.grad, "beta": layer.beta.grad}
    raw = layer.alpha.item(), layer.beta.item()  # as float32 has them
    for name, expected in formulas(x.detach(), upstream, *raw, base).items():
        torch.testing.assert_close(found[name], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("value", [-1.5, 0.75])
def test_second_derivatives_of_the_page(value: float):
    x, alpha, beta = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (value, 0.4, 0.8))
    sigma, below = 1 / (1 + math.exp(-0.8)), float(value < 0)
    by_x, by_beta = torch.autograd.grad(arelu(x, alpha, beta), (x, beta), create_graph=True)
    by_x_alpha, by_x_beta = torch.autograd.grad(by_x, (alpha, beta), retain_graph=True)
    (by_beta_twice,) = torch.autograd.grad(by_beta, beta)
    assert by_x_alpha.item() == pytest.approx(below)
    assert by_x_beta.item() == pytest.approx(sigma * (1 - sigma) * (1 - below))
    assert by_beta_twice.item() == pytest.approx(sigma * (1 - sigma) * (1 - 2 * sigma) * value * (1 - below))


def test_the_gain_of_the_page():
    """By integration over the Gaussian: the mean squares, and 2.085 between them."""

    def mean_square(function) -> float:
        halves = (
            integrate.quad(lambda x: function(x) ** 2 * stats.norm.pdf(x), *ends)[0] for ends in ((-9, 0), (0, 9))
        )
        return sum(halves)

    slope = 1 + 1 / (1 + math.exp(-2))
    of_arelu = mean_square(lambda x: 0.9 * x if x < 0 else slope * x)
    assert of_arelu == pytest.approx((0.9**2 + slope**2) / 2)
    assert mean_square(lambda x: max(x, 0)) == pytest.approx(0.5)
    assert math.sqrt(of_arelu / 0.5) == pytest.approx(RMS_GAIN_OVER_RELU)
    assert f"{RMS_GAIN_OVER_RELU:.3f}" == "2.085"


def test_the_api_pages_are_those_of_the_public_packages():
    pages = {path.stem for path in DOCS.glob("api/*.md")} - {"index"}
    assert pages == {package.removeprefix("arelu_meta.") for package in PUBLIC}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path, root: Path):
    """Pages in no table of contents, links and anchors that lead nowhere, docstrings that do not parse, notebooks."""
    pytest.importorskip("myst_nb", reason="no Sphinx: pip install 'arelu-meta[docs]', or make docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
