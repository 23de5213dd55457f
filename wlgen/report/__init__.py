"""Reports of an audit: JSON values, a terminal's tables, and one self-contained page.

What other rooms import of it:
answer      an audit as JSON values
terminal    an audit as tables
page        an audit as one self-contained page
provenance  which set, files, options and wlgen an audit is of
compared    audits of several cases, and which changes may be quoted
comparison_page  the page of a comparison
"""
