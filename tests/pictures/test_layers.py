from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from arelu_meta.errors import InputError
from arelu_meta.pictures.layers import layer_course_figure, start_grid_figure


def saved(figure: Figure, folder: Path) -> None:
    figure.savefig(folder / "figure.png")
    assert (folder / "figure.png").stat().st_size > 5_000


def test_a_panel_per_quantity_and_a_line_per_layer(tmp_path: Path):
    courses = {
        "alpha": {"one": [(0, 0.9), (1, 0.8)], "two": [(0, 0.9), (1, 0.95)]},
        "beta": {"one": [(0, 2.0), (1, 2.1)], "two": [(0, 2.0), (1, 1.9)]},
        "rms": {"one": [(0, 1.0), (1, 1.5)], "two": [(0, 3.0), (1, 4.0)]},
    }
    figure = layer_course_figure(courses, title="a run", n=7)
    drawn = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_ylabel() for axes in drawn] == ["alpha, as learned", "beta, as learned", "activation RMS"]
    lines = {line.get_label(): line.get_xydata().tolist() for line in drawn[2].lines}
    assert lines == {"one": [[0, 1.0], [1, 1.5]], "two": [[0, 3.0], [1, 4.0]]}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    assert "n = 7 training images" in str(figure.get_suptitle())
    saved(figure, tmp_path)


def test_many_layers_are_coloured_by_depth(tmp_path: Path):
    courses = {"rms": {f"layer{number}": [(0, 1.0), (1, number)] for number in range(17)}}
    figure = layer_course_figure(courses, title="deep", n=2)
    assert not figure.legends
    assert len({tuple(line.get_color()) for line in figure.axes[0].lines}) == 17
    assert figure.axes[1].get_ylabel() == "layer, first to last of 17"
    saved(figure, tmp_path)


def test_the_grid_of_starts_draws_means_and_bands(tmp_path: Path):
    """Seeds 0.5 and 0.7 after epoch 1: mean 60 %, band from 50 % to 70 %."""
    rows = [
        {"alpha": alpha, "beta": beta, "epoch": epoch, "accuracy": accuracy + 0.1 * (epoch - 1)}
        for alpha in (0.25, 0.9)
        for beta in (1.0, 2.0)
        for epoch in (1, 2)
        for accuracy in (0.5, 0.7)
    ]
    figure = start_grid_figure(rows, title="MNIST, sgd")
    assert [axes.get_title() for axes in figure.axes] == ["alpha = 0.25", "alpha = 0.9"]
    lines = {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}
    assert list(lines) == ["1", "2"]
    np.testing.assert_allclose(lines["2"], [[1, 60], [2, 70]])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert sorted({round(float(y)) for x, y in band if x == 1}) == [50, 70]
    assert "(n = 2 per start; band: lowest to highest)" in str(figure.get_suptitle())
    saved(figure, tmp_path)


def test_starts_with_different_numbers_of_seeds_say_so():
    rows = [{"alpha": 0.9, "beta": 2.0, "epoch": 1, "accuracy": 0.5}] * 3
    rows += [{"alpha": 0.9, "beta": 1.0, "epoch": 1, "accuracy": 0.5}]
    assert "(n = 1 to 3 per start" in str(start_grid_figure(rows, title="").get_suptitle())


def test_rows_that_do_not_serve():
    with pytest.raises(InputError, match="a row of the grid lacks 'epoch'; it has alpha, beta"):
        start_grid_figure([{"alpha": 1, "beta": 2}], title="")
    with pytest.raises(InputError, match="the grid has no rows"):
        start_grid_figure([], title="")
