"""Readers of one format each: text, Markdown, HTML, office documents, e-mail, RTF and tables; none imports torch."""
