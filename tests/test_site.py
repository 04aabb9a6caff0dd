"""The check of the built site's links."""

from docs.check_links import broken_links


def test_links_that_lead_nowhere_are_found_and_no_others(tmp_path):
    (tmp_path / "guide").mkdir()
    (tmp_path / "picture 1.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top"></a><a href="guide/"></a><a href="https://a.b/c"></a>'
        '<img src="picture%201.png"><a href="guide/index.html#part"></a><a href="#none"></a>'
    )
    (tmp_path / "guide" / "index.html").write_text(
        '<a name="part" href="../index.html#top"></a><a href="../gone.html"></a><img src="no.png">'
    )
    count, broken = broken_links(tmp_path)
    assert count == 8
    assert broken == [
        "guide/index.html: ../gone.html",
        "guide/index.html: no.png",
        "index.html: #none",
    ]
