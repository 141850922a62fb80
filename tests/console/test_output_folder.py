from pathlib import Path

import pytest

from arelu_meta.console.output_folder import output_folder
from arelu_meta.errors import InputError


def test_it_is_made_with_all_above_it(tmp_path: Path):
    assert output_folder(tmp_path / "a" / "b").is_dir()


def test_a_file_in_its_place_is_wrong_input(tmp_path: Path):
    (tmp_path / "taken").write_text("")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(InputError, match=r"cannot make the folder .*taken.*; choose another"):
            output_folder(place)
