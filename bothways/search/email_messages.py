"""Messages of e-mail (.eml) as Markdown: the subject as a heading, and the plain text, or else the HTML."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from bothways.search.html_pages import decode_html, html_to_markdown
from bothways.search.plain_text import Value, escaped

FIELDS = ("subject", "from", "to", "date")
MALFORMED = (ValueError, TypeError, LookupError, AttributeError)  # what the parser of headers raises


def email_to_markdown(content: bytes) -> tuple[str, dict[str, Value]]:
    """(the text without attachments, the fields: subject, from, to, and the date in ISO format)."""
    message = message_from_bytes(content, _class=EmailMessage, policy=policy.default)
    fields = {name: value for name in FIELDS if (value := _field(message, name))}
    is_cut_off = message.get_content_maintype() == "multipart" and not message.is_multipart()
    body = message if is_cut_off else message.get_body(("plain", "html"))
    text = ""
    if body is not None and isinstance(payload := body.get_payload(decode=True), bytes):
        text = decode_html(payload, body.get_content_charset()).replace("\r\n", "\n")
        text = html_to_markdown(text)[0] if body.get_content_subtype() == "html" else escaped(text)
    subject = f"# {fields['subject']}" if "subject" in fields else ""
    return "\n\n".join(filter(None, (subject, text.strip()))), {**fields}


def _field(message: EmailMessage, name: str) -> str:
    """A header in one line; as it is written if it is malformed."""
    try:
        value: Any = message.get(name, "")
        if name == "date" and getattr(value, "datetime", None):
            return str(value.datetime.isoformat())
    except MALFORMED:
        value = next((raw for key, raw in message.raw_items() if key.lower() == name), "")
    return " ".join(str(value).split())
