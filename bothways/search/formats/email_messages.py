"""E-mail (.eml) as Markdown: the subject as a heading, the text of the message, and its fields; no attachments."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from bothways.search.formats.html_pages import decode_html, html_to_markdown
from bothways.search.formats.plain_text import Value, escaped

FIELDS = ("subject", "from", "to", "date")
MALFORMED = (ValueError, TypeError, LookupError, AttributeError)  # what the parser of headers raises


def email_to_markdown(content: bytes) -> tuple[str, dict[str, Value]]:
    """(The subject as a heading, and the plain text, or else the HTML, without attachments; the fields: subject, from,
    to, and the date in ISO format)."""
    message = message_from_bytes(content, _class=EmailMessage, policy=policy.default)
    fields: dict[str, Value] = {}
    for name in FIELDS:
        value = _field(message, name)
        if value:
            fields[name] = value

    blocks = [_body(message).strip()]
    if "subject" in fields:
        blocks.insert(0, f"# {fields['subject']}")
    return "\n\n".join(filter(None, blocks)), fields


def _field(message: EmailMessage, name: str) -> str:
    """A header in one line; as it is written if it is malformed."""
    try:
        value: Any = message.get(name, "")
        if name == "date" and getattr(value, "datetime", None):
            return str(value.datetime.isoformat())
    except MALFORMED:
        value = next((raw for key, raw in message.raw_items() if key.lower() == name), "")
    return " ".join(str(value).split())


def _body(message: EmailMessage) -> str:
    """The plain text of a message, or else its HTML, as Markdown; "" if it has neither."""
    # A message that is cut off before its first part has no parts: the text that is there is the body.
    is_cut_off = message.get_content_maintype() == "multipart" and not message.is_multipart()
    body = message if is_cut_off else message.get_body(("plain", "html"))
    if body is None:
        return ""
    payload = body.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""

    text = decode_html(payload, body.get_content_charset()).replace("\r\n", "\n")
    kind = body.get_content_subtype()
    if kind == "html":
        text, _ = html_to_markdown(text)
        return text
    if kind == "plain" and str(body.get_param("format", "")).lower() == "flowed":
        text = unflowed(text, delete_space=str(body.get_param("delsp", "")).lower() == "yes")
    return escaped(text)


def unflowed(text: str, *, delete_space: bool) -> str:
    """Paragraphs of a text in format=flowed (RFC 3676): a line that ends in a space goes on in the next one of the same
    depth of quotation. delete_space: that space is not part of the text (delsp=yes)."""
    paragraphs: list[tuple[int, str]] = []
    is_open = False

    for line in text.split("\n"):
        content = line.lstrip(">")
        depth = len(line) - len(content)
        content = content.removeprefix(" ")  # which senders put before some lines
        is_signature = content == "-- "

        goes_on = is_open and not is_signature and paragraphs[-1][0] == depth
        is_open = content.endswith(" ") and not is_signature
        if is_open and delete_space:
            content = content[:-1]

        if goes_on:
            paragraphs[-1] = (depth, paragraphs[-1][1] + content)
        else:
            paragraphs.append((depth, content))

    lines = []
    for depth, content in paragraphs:
        mark = ">" * depth + " " if depth else ""
        lines.append(mark + content)
    return "\n".join(lines)
