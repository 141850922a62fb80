from arelu_meta.console.tables import text_table


def test_numbers_to_the_right_words_to_the_left():
    table = text_table(("name", "n"), [("relu", "0"), ("pau", "10"), ("b", "2.5")])
    assert table.splitlines() == ["  name    n", "  relu    0", "  pau    10", "  b     2.5"]


def test_one_word_makes_a_column_of_words():
    assert text_table(("a", "b"), [("x", "1"), ("y", "none")]).splitlines() == ["  a  b", "  x  1", "  y  none"]


def test_header_without_names_is_left_out():
    assert text_table(("", ""), [("digits", "five ways")]) == "  digits  five ways"


def test_header_with_one_name_is_shown():
    table = text_table(("task", ""), [("digits", "five ways")])
    assert table.splitlines() == ["  task", "  digits  five ways"]


def test_no_rows():
    assert text_table(("name", "n"), []) == "  name  n"


def test_no_trailing_space_and_own_indent():
    table = text_table(("a", "b"), [("long word", ""), ("x", "y")], indent="")
    assert table.splitlines() == ["a          b", "long word", "x          y"]


def test_what_a_terminal_would_obey_is_written_out():
    """A name that clears the screen, one of two lines, one that is read backwards; letters of any script stay."""
    table = text_table(("file", "class"), [("a\x1b[2J", "b\nc"), ("\u202ex", "Größe λ")], indent="")
    assert table.splitlines() == ["file      class", r"a\x1b[2J  b\nc", r"\u202ex   Größe λ"]
