import pandas as pd

from arelu_meta.analysis.published import published_rows

TABLE = pd.DataFrame({"activation": ["relu", "arelu"], "lr": ["1e-4", None], "value": [1.0, 2.0]})


def test_rows_of_a_cell():
    assert published_rows(TABLE, {"activation": "relu", "lr": 0.0001})["value"].tolist() == [1.0]
    assert published_rows(TABLE, {"activation": "relu", "lr": 0.1})["value"].tolist() == []
    assert published_rows(TABLE, {"activation": "arelu", "lr": 0.1, "shots": 5})["value"].tolist() == [2.0]


def test_nothing_published():
    assert published_rows(None, {"activation": "relu"}).empty
    assert published_rows(TABLE.iloc[:0], {"activation": "relu"}).empty


def test_an_axis_that_a_file_leaves_empty_fits_any_value():
    as_read = TABLE.assign(lr=["1e-4", ""])
    assert published_rows(as_read, {"activation": "arelu", "lr": 0.1})["value"].tolist() == [2.0]
