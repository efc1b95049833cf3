"""Text of HTML as Publican, DocBook and Sphinx write it, and of OSIS."""

from __future__ import annotations

from focus_explorer.usecases.mixture.markup import paragraphs_of

DOCBOOK = """<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html><html><head><title>Chapter 1</title>
<style>p { color: red }</style></head><body>
<div class="navheader"><table><tr><td><a href="a.html">Prev</a></td></tr></table><hr/></div>
<div class="chapter"><h1 class="title"><a id="x"/>1. Les paquets</h1>
<div class="toc"><p>Table of Contents</p><dl class="toc"><dt><a href="b.html">1.1. A</a></dt></dl></div>
<p>Une phrase   sur
deux lignes &amp; un <code>mot</code>&nbsp;d'ordre.<br/>Fin.</p>
<ul><li><p>premier</p></li><li>second <ul><li>dedans</li></ul></li></ul>
<pre class="screen"># <b>apt</b> update

  Reading...
</pre>
<div class="table"><p class="title">Table 1</p><table><tr><td>no</td></tr></table></div></div>
<div class="navfooter">Next</div></body></html>"""


def test_docbook_keeps_paragraphs_lists_and_listings_and_nothing_else():
    assert paragraphs_of(DOCBOOK) == [
        "1. Les paquets",
        "Une phrase sur deux lignes & un mot d'ordre. Fin.",
        "- premier",
        "- second",
        "- dedans",
        "# apt update\n\n  Reading...",
    ]


def test_publican_and_sphinx_navigation_is_left_out():
    page = """<body><div id="banner"><a>Download</a></div><p id="title">Site</p>
    <ul class="docnav top"><li>Prev</li></ul>
    <div class="related" role="navigation"><h3>Navigation</h3><ul><li>index</li></ul></div>
    <div class="body" role="main"><h1>Scope<a class="headerlink" href="#s">¶</a></h1><p>Text.</p></div>
    <div class="sphinxsidebar"><div><p>Links</p></div></div><div class="footer">©</div></body>"""
    assert paragraphs_of(page) == ["Scope", "Text."]


def test_elements_that_are_never_closed_do_not_hide_what_follows():
    assert paragraphs_of("<p>one<p>two<img src=a><div class=toc><p>no<br></div><li>three") == ["one", "two", "- three"]
    assert paragraphs_of("</pre></div>plain") == ["plain"]


def test_osis_notes_are_left_out():
    osis = (
        '<div type="x-p" sID="1"/><w lemma="a">The</w> <w>book</w><note>see <b>it</b></note>.<div eID="1"/><w>Next</w>'
    )
    assert paragraphs_of(osis) == ["The book.", "Next"]
