from arelu_meta.reporting.markup import Markup, join, tag


def test_escapes_text_and_attributes():
    assert tag("p", "<b>&", title='"quoted"') == '<p title="&quot;quoted&quot;">&lt;b&gt;&amp;</p>'


def test_markup_is_not_escaped_again():
    assert tag("p", tag("b", "x"), " & ") == "<p><b>x</b> &amp; </p>"
    assert join([Markup("<i>"), "<i>"]) == "<i>&lt;i&gt;"


def test_attributes():
    assert tag("input", type="checkbox", checked=True, disabled=False) == '<input type="checkbox" checked>'
    assert tag("meta", name="a", content="b") == '<meta name="a" content="b">'
    assert tag("circle", data_x=1 / 3, class_="a b") == '<circle data-x="0.333333" class="a b"></circle>'
